#include "convert/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/thread_team.h"
#include "base/topology.h"
#include "gguf/gguf_writer.h"
#include "gguf/split.h"

namespace lockstep {
namespace {

// Weights that one thread encodes at a time, and pieces whose bytes are kept until they are
// written.
constexpr int64_t kPieceWeights = int64_t{1} << 16;
constexpr size_t kPiecesHeld = 256;

constexpr uint32_t kQuantizationVersion = 2;

// Whole rows of a tensor, or a part of one long row.
struct Piece {
  int64_t begin = 0, weights = 0;  // of the tensor's weights in file order
  std::vector<std::byte> bytes;
  double squares = 0, square_errors = 0, weighted_squares = 0, weighted_errors = 0;
  double largest_error = 0;
  int64_t fault = -1;  // the first weight that is not finite
  float fault_value = 0;
};

// The importance of each column of a tensor, expert after expert.
class Columns {
 public:
  Columns() = default;
  Columns(const ImatrixEntry& entry, const GgufTensor& tensor)
      : means_(Imatrix::Means(entry)),
        n_(static_cast<int64_t>(tensor.dims[0])),
        rows_(static_cast<int64_t>(tensor.dims[1])),
        experts_(static_cast<int64_t>(means_.size()) / n_) {}

  bool known() const { return !means_.empty(); }
  // Copies the importance of `count` weights from `begin` on.
  void Copy(int64_t begin, int64_t count, float* out) const {
    for (int64_t i = 0; i < count;) {
      const int64_t row = (begin + i) / n_, column = (begin + i) % n_;
      const int64_t expert = experts_ == 1 ? 0 : row / rows_;
      const int64_t run = std::min(n_ - column, count - i);
      std::copy_n(means_.data() + expert * n_ + column, run, out + i);
      i += run;
    }
  }

 private:
  std::vector<float> means_;
  int64_t n_ = 0, rows_ = 0, experts_ = 0;
};

// One thread's memory.
struct Workspace {
  std::vector<float> x = std::vector<float>(kPieceWeights);
  std::vector<float> importance = std::vector<float>(kPieceWeights);
  std::vector<float> decoded = std::vector<float>(kPieceWeights);
};

void Decode(const PlannedTensor& plan, Piece& piece, float* x) {
  const Format& from = *plan.from;
  const int64_t at = piece.begin / from.block * from.block_bytes;
  from.decode(plan.tensor.data.data() + at, piece.weights / from.block, x);
  for (int64_t i = 0; i < piece.weights; ++i) {
    if (std::isfinite(x[i])) continue;
    piece.fault = piece.begin + i;
    piece.fault_value = x[i];
    return;
  }
}

void Measure(const Workspace& work, bool weighted, Piece& piece) {
  for (int64_t i = 0; i < piece.weights; ++i) {
    const auto at = static_cast<size_t>(i);
    const double x = work.x[at], off = x - work.decoded[at];
    piece.squares += x * x;
    piece.square_errors += off * off;
    piece.largest_error = std::max(piece.largest_error, std::abs(off));
    if (!weighted) continue;
    piece.weighted_squares += work.importance[at] * (x * x);
    piece.weighted_errors += work.importance[at] * (off * off);
  }
}

void Encode(const PlannedTensor& plan, const Columns& columns, Workspace& work, Piece& piece) {
  Decode(plan, piece, work.x.data());
  if (piece.fault >= 0) return;
  const Format& to = *plan.to;
  const int64_t blocks = piece.weights / to.block;
  piece.bytes.resize(static_cast<size_t>(blocks * to.block_bytes));
  if (columns.known()) columns.Copy(piece.begin, piece.weights, work.importance.data());
  if (to.fit != nullptr) {
    to.fit(work.x.data(), columns.known() ? work.importance.data() : nullptr, blocks,
           piece.bytes.data());
  } else {
    to.encode(work.x.data(), blocks, piece.bytes.data());
  }
  to.decode(piece.bytes.data(), blocks, work.decoded.data());
  Measure(work, columns.known(), piece);
}

void Check(const PlannedTensor& plan, Workspace& work, Piece& piece) {
  Decode(plan, piece, work.x.data());
}

// Cuts a tensor where both formats can be cut.
std::vector<Piece> Cut(const PlannedTensor& plan) {
  const auto n = static_cast<int64_t>(plan.tensor.dims[0]);
  const auto all = static_cast<int64_t>(plan.tensor.elements());
  // Every block length divides 256, and rows are whole blocks of either format.
  const int64_t step = n <= kPieceWeights ? kPieceWeights / n * n : kPieceWeights;
  std::vector<Piece> pieces;
  for (int64_t at = 0; at < all; at += step) {
    pieces.emplace_back();
    pieces.back().begin = at;
    pieces.back().weights = std::min(step, all - at);
  }
  return pieces;
}

// Output files: one, or as many as were read.
class Outputs {
 public:
  Outputs(const GgufFile& file, const std::vector<PlannedTensor>& plan,
          const QuantizeOptions& options) {
    const size_t count = options.keep_split ? file.shard_count() : 1;
    for (size_t i = 0; i < count; ++i) {
      writers_.push_back(std::make_unique<GgufWriter>(PathOf(options, i, count)));
      if (i == 0) AddMetadata(file, options, *writers_[i]);
      if (count > 1) {
        writers_[i]->Add("split.no", static_cast<uint16_t>(i));
        writers_[i]->Add("split.count", static_cast<uint16_t>(count));
        writers_[i]->Add("split.tensors.count", static_cast<int32_t>(plan.size()));
      }
    }
    for (const PlannedTensor& row : plan) {
      const GgufTensor& tensor = row.tensor;
      Of(tensor).AddTensor(tensor.name, row.to->id,
                           std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count)));
    }
  }

  GgufWriter& Of(const GgufTensor& tensor) {
    return *writers_[writers_.size() == 1 ? 0 : tensor.shard];
  }
  void Finish() {
    for (auto& writer : writers_) writer->Finish();
  }

 private:
  static std::string PathOf(const QuantizeOptions& options, size_t i, size_t count) {
    if (count == 1) return options.output;
    std::string prefix = options.output;
    if (prefix.ends_with(".gguf")) prefix.resize(prefix.size() - 5);
    GgufSplitName name{prefix, 0, static_cast<uint32_t>(count)};
    return name.PathOf(static_cast<uint32_t>(i) + 1);
  }

  static void AddMetadata(const GgufFile& file, const QuantizeOptions& options,
                          GgufWriter& writer) {
    const GgufMetadata& metadata = file.metadata();
    const bool copies = options.mix.mix->id == MixId::kCopy;
    for (size_t i = 0; i < metadata.size(); ++i) {
      const GgufEntry entry = metadata.at(i);
      const bool ours = entry.key == kGgufAlignmentKey || entry.key.starts_with("split.") ||
                        entry.key == "general.quantization_version" ||
                        (entry.key == "general.file_type" && !copies) ||
                        entry.key.starts_with("quantize.imatrix.");
      if (!ours) writer.Add(entry.key, entry.value);
    }
    writer.Add("general.quantization_version", kQuantizationVersion);
    if (!copies) writer.Add("general.file_type", options.mix.mix->number);
    if (options.imatrix == nullptr) return;
    writer.Add("quantize.imatrix.file", options.imatrix_name);
    if (!options.imatrix->datasets.empty()) {
      writer.Add("quantize.imatrix.dataset", options.imatrix->datasets[0]);
    }
    writer.Add("quantize.imatrix.entries_count",
               static_cast<uint32_t>(options.imatrix->entries().size()));
    writer.Add("quantize.imatrix.chunks_count", options.imatrix->chunks);
  }

  std::vector<std::unique_ptr<GgufWriter>> writers_;
};

class Quantizer {
 public:
  Quantizer(const GgufFile& file, const QuantizeOptions& options)
      : file_(file),
        options_(options),
        team_(options.threads > 0 ? options.threads : Topology::Detect().DefaultThreads()),
        work_(static_cast<size_t>(team_.size())) {}

  // Encodes one tensor and writes it.
  void Run(const PlannedTensor& plan, const Columns& columns, GgufWriter& writer, Progress& bar,
           QuantizedTensor& result) {
    const bool copied = plan.from == plan.to;
    std::vector<Piece> pieces = Cut(plan);
    for (size_t first = 0; first < pieces.size(); first += kPiecesHeld) {
      ThrowIfInterrupted();
      const std::span some =
          std::span(pieces).subspan(first, std::min(kPiecesHeld, pieces.size() - first));
      std::atomic<size_t> next{0};
      team_.Run([&](int member) {
        Workspace& work = work_[static_cast<size_t>(member)];
        for (size_t i; (i = next.fetch_add(1)) < some.size();) {
          copied ? Check(plan, work, some[i]) : Encode(plan, columns, work, some[i]);
        }
      });
      for (Piece& piece : some) {
        if (piece.fault >= 0) RefuseNumber(plan, piece);
        Sum(piece, result);
        if (!copied) writer.Write(piece.bytes);
        piece.bytes = {};
        bar.Add(static_cast<uint64_t>(plan.from->RowBytes(piece.weights)));
      }
    }
    if (copied) writer.Write(plan.tensor.data);
    file_.Release(plan.tensor);
  }

 private:
  [[noreturn]] void RefuseNumber(const PlannedTensor& plan, const Piece& piece) const {
    const auto n = static_cast<int64_t>(plan.tensor.dims[0]);
    throw Refused("{}: {}: expected finite numbers, found {} at row {}, column {}",
                  Printable(file_.name(), 4096), Printable(plan.tensor.name), piece.fault_value,
                  piece.fault / n, piece.fault % n);
  }

  static void Sum(const Piece& piece, QuantizedTensor& result) {
    result.squares += piece.squares;
    result.square_errors += piece.square_errors;
    result.weighted_squares += piece.weighted_squares;
    result.weighted_errors += piece.weighted_errors;
    result.largest_error = std::max(result.largest_error, piece.largest_error);
  }

  const GgufFile& file_;
  const QuantizeOptions& options_;
  ThreadTeam team_;
  std::vector<Workspace> work_;
};

// Refuses what must not be quantised, and finds the importance of what is.
const ImatrixEntry* CheckTensor(const GgufFile& file, const QuantizeOptions& options,
                                const PlannedTensor& plan) {
  const auto refuse = [&](const std::string& text) {
    throw Refused("{}: {}: {}", Printable(file.name(), 4096), Printable(plan.tensor.name), text);
  };
  if (plan.from == plan.to) return nullptr;
  if (plan.from->block > 1 && !options.allow_requantize) {
    refuse(fmt::format("expected F32, F16 or BF16, found {}; --allow-requantize takes it",
                       plan.from->name));
  }
  const ImatrixEntry* entry =
      options.imatrix == nullptr ? nullptr : options.imatrix->Find(plan.tensor.name);
  if (entry == nullptr) {
    if (plan.needs_importance && !options.dry_run) {
      refuse(fmt::format(
          "{} is of use with an importance matrix only; found {}", plan.to->name,
          options.imatrix == nullptr ? "none (--imatrix FILE)" : "one without this tensor"));
    }
    return nullptr;
  }
  const uint64_t n = plan.tensor.dims[0], all = n * plan.tensor.dims[2] * plan.tensor.dims[3];
  if (entry->sums.size() == n || entry->sums.size() == all) return entry;
  refuse(fmt::format("expected an importance matrix of {} columns, found {}", all,
                     entry->sums.size()));
  return nullptr;
}

std::vector<int64_t> UnseenExperts(const ImatrixEntry* entry) {
  std::vector<int64_t> unseen;
  if (entry == nullptr || entry->counts.size() == 1) return unseen;
  for (size_t e = 0; e < entry->counts.size(); ++e) {
    if (entry->counts[e] == 0) unseen.push_back(static_cast<int64_t>(e));
  }
  return unseen;
}

uint64_t BytesOf(const GgufTensor& tensor, const Format& format) {
  return tensor.elements() / static_cast<uint64_t>(format.block) *
         static_cast<uint64_t>(format.block_bytes);
}

// The quantiser reads what it writes through a map: they must not be one file.
void CheckPaths(const GgufFile& file, const QuantizeOptions& options) {
  for (size_t i = 0; i < file.shard_count(); ++i) {
    if (file.shard_name(i) == options.output) {
      throw Refused("{}: expected another name for the output, found that of the input",
                    Printable(options.output, 4096));
    }
  }
}

}  // namespace

double QuantizedTensor::relative_error() const {
  return squares > 0 ? std::sqrt(square_errors / squares) : 0;
}

QuantizeResult QuantizeFile(const QuantizeOptions& options) {
  const GgufFile file = GgufFile::Open(options.input);
  CheckPaths(file, options);
  const std::vector<GgufTensor> tensors(file.tensors().begin(), file.tensors().end());
  const std::vector<PlannedTensor> plan = PlanFormats(tensors, file.metadata(), options.mix);
  std::vector<const ImatrixEntry*> entries;
  QuantizeResult result;
  for (const PlannedTensor& row : plan) {
    entries.push_back(CheckTensor(file, options, row));
    result.bytes_before += BytesOf(row.tensor, *row.from);
    result.bytes_after += BytesOf(row.tensor, *row.to);
  }
  std::optional<Outputs> outputs;
  std::optional<Quantizer> quantizer;
  if (!options.dry_run) {
    outputs.emplace(file, plan, options);
    quantizer.emplace(file, options);
  }
  Progress bar("quantising", result.bytes_before, {.unit = ProgressUnit::kBytes});
  for (size_t i = 0; i < plan.size(); ++i) {
    const PlannedTensor& row = plan[i];
    QuantizedTensor& out = result.tensors.emplace_back();
    out.name = row.tensor.name;
    out.from = row.from;
    out.to = row.to;
    out.meant = row.meant;
    out.unseen_experts = UnseenExperts(entries[i]);
    out.weights = row.tensor.elements();
    out.bytes_before = BytesOf(row.tensor, *row.from);
    out.bytes_after = BytesOf(row.tensor, *row.to);
    if (options.dry_run) continue;
    const Columns columns = entries[i] == nullptr ? Columns() : Columns(*entries[i], row.tensor);
    quantizer->Run(row, columns, outputs->Of(row.tensor), bar, out);
  }
  if (outputs) outputs->Finish();
  return result;
}

}  // namespace lockstep
