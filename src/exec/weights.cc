#include "exec/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// Kernels prefetch past the end of a matrix.
constexpr uint64_t kMatrixSlack = 4096;

int64_t Elements(const Shape& shape) { return static_cast<int64_t>(shape.Count().value_or(0)); }

// How many of a weight's axes count its rows, as the operation that uses it reads rows.
size_t AxesOfRows(const Graph& graph, const Node& node, const Value& value, OperandKind kind) {
  if (kind == OperandKind::kTable) return 1;
  // A matrix meets the rows of operand 0; their first axis is t.
  return value.shape.rank() - (graph.value(node.inputs[0]).shape.rank() - 1);
}

void ExpectWeightType(const GgufFile& file, const GgufTensor& tensor) {
  const Format* format = FindFormat(tensor.type->id);
  if (format->group != 0 || format->name == "F32" || format->name == "F16" ||
      format->name == "BF16") {
    return;
  }
  throw Refused("{}: {}: expected a type of weights, found {}", Printable(file.name(), 4096),
                tensor.name, format->name);
}

void ExpectRows(const GgufFile& file, const GgufTensor& tensor, int64_t width, int64_t rows) {
  if (static_cast<int64_t>(tensor.dims[0]) == width && static_cast<int64_t>(tensor.rows()) == rows)
    return;
  throw Refused("{}: {}: expected [{}, {}], found [{}, {}]", Printable(file.name(), 4096),
                tensor.name, width, rows, tensor.dims[0], tensor.rows());
}

// The part of a matrix whose axes [first, middle) count rows, and those after them columns.
void TakePart(const GgufFile& file, const Value& value, size_t first, size_t middle,
              WeightUse& use) {
  const Value whole = WholeOf(value);
  const size_t rank = value.shape.rank();
  auto size = [](const std::vector<IndexRun>& runs) {
    int64_t sum = 0;
    for (const IndexRun& run : runs) sum += run.size;
    return sum;
  };
  const std::vector<IndexRun> columns = RunsOf(value, middle, rank);
  use.part = {size(RunsOf(whole, first, middle)), size(RunsOf(whole, middle, rank)),
              RunsOf(value, first, middle), columns[0].begin};
  use.rows = size(use.part.row_runs);
  use.width = size(columns);
  use.format = &use.in_file().held();
  const int64_t block = use.format->block;
  if (columns.size() > 1 || use.part.column_begin % block != 0 ||
      (use.width % block != 0 && use.part.column_begin + use.width != use.part.width)) {
    throw Refused("{}: {}: expected a cut along whole blocks of {}, found columns {} to {} of {}",
                  Printable(file.name(), 4096), use.tensor.name, block, use.part.column_begin,
                  use.part.column_begin + use.width, use.part.width);
  }
}

// All experts from one tensor, or each from its own.
std::vector<WeightUse> FindExperts(const GgufFile& file, ValueId id, const Value& value) {
  const IndexRun held = RunsOf(value, 0, 1)[0];
  const int64_t all = WholeOf(value).shape[0].size;
  const std::string& name = value.source.tensor;
  const size_t star = name.find('*');
  std::vector<WeightUse> uses;
  for (int64_t done = 0; done < held.size; done += uses.back().experts) {
    std::string part = name;
    const int64_t first = held.begin + done;
    if (star != name.npos) part.replace(star, 1, std::to_string(first));
    const GgufTensor tensor = file.RequireTensor(part);
    WeightUse use{id, OperandKind::kExperts, tensor, 0, 0, value.source, nullptr};
    TakePart(file, value, 1, 2, use);
    const auto [file_rows, file_width] = use.in_file().file_shape();
    ExpectRows(file, tensor, file_width, (star == name.npos ? all : 1) * file_rows);
    ExpectWeightType(file, tensor);
    use.file_rows = file_rows;
    use.file_expert = star == name.npos ? first : 0;
    use.experts = star == name.npos ? held.size : 1;
    use.first_expert = done;
    use.all_experts = held.size;
    uses.push_back(std::move(use));
    if (uses.back().format != uses[0].format) {
      throw Refused("{}: {}: expected {} as {} is, found {}", Printable(file.name(), 4096),
                    tensor.name, uses[0].format->name, uses[0].tensor.name,
                    uses.back().format->name);
    }
  }
  return uses;
}

// How many of them a token uses: all, where nothing chooses.
int64_t UsedExperts(const Graph& graph, const Node& node, int64_t all) {
  for (ValueId id : node.inputs) {
    const Shape& shape = graph.value(id).shape;
    const Axis& last = shape[shape.rank() - 1];
    if (graph.value(id).kind == Value::Kind::kComputed && last.name == 'u') return last.size;
  }
  return all;
}

// A vector is one row of its file's tensor or has any of its last axes in each of several; a part of a fused one is counted in such
// rows, or in the numbers of the only one. Returns how many numbers a row so counted has.
int64_t ExpectVector(const GgufFile& file, const GgufTensor& tensor, const Value& value) {
  const int64_t elements = Elements(value.shape), file_rows = value.source.file_rows;
  if (tensor.rows() == 1) {
    ExpectRows(file, tensor, file_rows != 0 ? file_rows : elements, 1);
    return 1;
  }
  const auto found = static_cast<int64_t>(tensor.dims[0]);
  int64_t width = 1;
  for (size_t i = value.shape.rank(); i-- > 0 && width < found;) width *= value.shape[i].size;
  if (width != found) width = value.shape[value.shape.rank() - 1].size;
  ExpectRows(file, tensor, width, file_rows != 0 ? file_rows : elements / width);
  return width;
}

std::vector<WeightUse> FindWeight(const Graph& graph, const GgufFile& file, const Node& node,
                                  size_t operand, OperandKind kind) {
  const ValueId id = node.inputs[operand];
  const Value& value = graph.value(id);
  if (kind == OperandKind::kExperts) {
    std::vector<WeightUse> uses = FindExperts(file, id, value);
    for (WeightUse& use : uses) {
      use.experts_of_model = WholeOf(value).shape[0].size;
      use.used_experts = UsedExperts(graph, node, use.experts_of_model);
    }
    return uses;
  }
  const GgufTensor tensor = file.RequireTensor(value.source.tensor);
  WeightUse use{id, kind, tensor, 0, 0, value.source, nullptr};
  // Tables are read where the file has them.
  LOCKSTEP_CHECK(kind != OperandKind::kTable || !value.part.cut(), "{} is cut", value.name);
  if (kind == OperandKind::kVector) {
    use.part.row_runs = RunsOf(value, 0, value.shape.rank());
    use.rows = 1;
    use.width = Elements(value.shape);
    use.format = FindFormat(tensor.type->id);
    use.source.row_begin *= ExpectVector(file, tensor, WholeOf(value));
  } else {
    TakePart(file, value, 0, AxesOfRows(graph, node, value, kind), use);
    const auto [rows, width] = use.in_file().file_shape();
    ExpectRows(file, tensor, width, rows);
  }
  // A table may list numbers of other things.
  if (kind != OperandKind::kTable || use.format->name != "I32") ExpectWeightType(file, tensor);
  return {use};
}

// The sizes of a weight's tensor in a file, fastest first.
std::vector<uint64_t> FileDims(const Graph& graph, const Node& node, size_t operand) {
  const OperandKind kind = node.op->operand(operand);
  const Value& value = graph.value(node.inputs[operand]);
  const Shape& shape = value.shape;
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  if (kind == OperandKind::kVector) {
    // Biases of experts have a row each.
    const bool stacked = shape.rank() == 2 && shape[0].name == 'e';
    if (stacked) return {size(shape[1].size), size(shape[0].size)};
    return {size(value.source.file_rows != 0 ? value.source.file_rows : Elements(shape))};
  }
  const bool stacked = kind == OperandKind::kExperts;
  const int64_t count = stacked ? shape[0].size : 1;
  int64_t width = 1;
  for (size_t i = stacked ? 2 : AxesOfRows(graph, node, value, kind); i < shape.rank(); ++i)
    width *= shape[i].size;
  WeightRows in_file{{}, value.source, Elements(shape) / count / width, width, {}};
  in_file.part = {in_file.rows, width, {{0, in_file.rows}}, 0};
  const auto [file_rows, file_width] = in_file.file_shape();
  if (stacked) return {size(file_width), size(file_rows), size(count)};
  return {size(file_width), size(file_rows)};
}

// The first of the weights that are not finite, whichever thread finds it.
class FirstFault {
 public:
  void Report(const std::optional<BadWeight>& found) {
    if (!found) return;
    std::lock_guard lock(mutex_);
    if (!bad_ || found->row < bad_->row) bad_ = found;
  }
  // Throws where there is one. first_row: where the tensor's experts before this one end
  void Refuse(const WeightUse& use, int64_t first_row, const GgufFile& file) const {
    if (!bad_) return;
    const auto [row, column] = use.in_file().PlaceInFile(bad_->row, bad_->column);
    throw Refused(
        "{}: {}: expected finite weights, found NaN or infinity at row {}, column {} or in its "
        "block",
        Printable(file.name(), 4096), use.tensor.name, first_row + row, column);
  }

 private:
  std::mutex mutex_;
  std::optional<BadWeight> bad_;
};

// Weights that multiply one operand are quantised together or not at all.
void ExpectOneForm(const Graph& graph, const GgufFile& file, const Node& node,
                   std::span<const WeightUse> uses) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const WeightUse* first = nullptr;
    for (size_t weight : node.op->multiplied_by(i)) {
      const auto use = std::ranges::find_if(uses, [&](const WeightUse& other) {
        return other.value == node.inputs[weight] && other.kind == node.op->operand(weight);
      });
      if (first == nullptr) first = &*use;
      if ((use->format->group != 0) == (first->format->group != 0)) continue;
      throw Refused("{}: {}: expected {} or a type like it, as {} is, found {}",
                    Printable(file.name(), 4096), graph.value(use->value).source.tensor,
                    first->format->name, first->tensor.name, use->format->name);
    }
  }
}

}  // namespace

const Format& WeightFormat(const GgufFile& file, const WeightSource& source) {
  std::string name = source.tensor;
  if (const size_t star = name.find('*'); star != name.npos) name.replace(star, 1, "0");
  return WeightRows{file.RequireTensor(name), source, 0, 0, {}}.held();
}

int64_t WeightUse::bytes() const {
  switch (kind) {
    case OperandKind::kMatrix:
    case OperandKind::kExperts:
      return experts * PackedMatrix(*format, rows, width).bytes();
    case OperandKind::kVector:
      return width * static_cast<int64_t>(sizeof(float));
    default:
      return 0;
  }
}

bool WeightUse::PacksLike(const WeightUse& other) const {
  WeightSource same = source;
  same.tensor = other.source.tensor;
  same.of_model = other.source.of_model;
  return kind == OperandKind::kMatrix && other.kind == kind &&
         tensor.data.data() == other.tensor.data.data() && rows == other.rows &&
         width == other.width && part == other.part && format == other.format &&
         same == other.source;
}

std::vector<ExpectedTensor> ExpectedTensors(const Graph& graph) {
  std::vector<ExpectedTensor> tensors;
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& value = graph.value(node.inputs[i]);
      if (value.kind != Value::Kind::kWeight || !names.insert(value.source.tensor).second) continue;
      tensors.push_back({value.source.tensor, FileDims(graph, node, i)});
    }
  }
  return tensors;
}

std::vector<WeightUse> FindWeights(const Graph& graph, const GgufFile& file,
                                   const GgufFile* model) {
  std::vector<WeightUse> uses;
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph.value(node.inputs[i]).kind != Value::Kind::kWeight) continue;
      const OperandKind kind = node.op->operand(i);
      const bool known = std::ranges::any_of(uses, [&](const WeightUse& use) {
        return use.value == node.inputs[i] && use.kind == kind;
      });
      const GgufFile& from = graph.value(node.inputs[i]).source.of_model ? *model : file;
      if (!known)
        std::ranges::move(FindWeight(graph, from, node, i, kind), std::back_inserter(uses));
    }
    ExpectOneForm(graph, file, node, uses);
  }
  return uses;
}

std::function<bool(ValueId)> TakesCodes(std::span<const WeightUse> uses) {
  std::set<ValueId> weights;
  for (const WeightUse& use : uses) {
    if (use.format->group != 0) weights.insert(use.value);
  }
  return [weights = std::move(weights)](ValueId id) { return weights.contains(id); };
}

WeightStore::WeightStore(std::vector<WeightUse> uses, const GgufFile& file, ThreadTeam& team,
                         const Progress& progress, std::span<const WeightStore* const> lenders) {
  int64_t all = 0;
  for (const WeightUse& use : uses) all += use.bytes();
  // In file order, so that reading is sequential.
  std::ranges::stable_sort(uses, {}, [](const WeightUse& use) {
    return std::pair(use.tensor.shard, use.tensor.data.data());
  });
  for (const WeightUse& use : uses) {
    if (Borrow(use, lenders)) continue;
    switch (use.kind) {
      case OperandKind::kMatrix:
        LoadMatrix(use, file, team);
        break;
      case OperandKind::kExperts:
        LoadExperts(use, file, team);
        break;
      case OperandKind::kVector:
        LoadVector(use, file);
        break;
      default:
        operands_[{use.value, use.kind}] =
            Table{use.format, use.tensor.data.data(), use.rows, use.width};
    }
    bytes_ += use.bytes();
    if (progress) progress(bytes_, all);
  }
}

// Packs the rows of one matrix, of which the tensor's row 0 stands at file_row.
void WeightStore::PackMatrix(const WeightUse& use, int64_t file_row, const GgufFile& file,
                             ThreadTeam& team, PackedMatrix& matrix) {
  const int64_t row_bytes = use.format->RowBytes(use.width);
  const std::byte* rows =
      use.tensor.data.data() +
      (file_row + use.source.row_begin + use.part.row_runs[0].begin) * row_bytes;
  Buffer together;
  if (use.in_file().scattered()) {
    together =
        Buffer(Size(static_cast<uint64_t>(use.rows)) * Size(static_cast<uint64_t>(row_bytes)),
               use.tensor.name);
    rows = together.data();
  }
  FirstFault fault;
  team.Run([&](int member) {
    // The same share as Linear's, so that each thread touches first what it will read.
    const WorkRange share = ShareOf(use.rows, kColumnUnit, member, team.size());
    // An empty share may end within another's last panel.
    if (share.size() == 0) return;
    if (use.in_file().scattered()) {
      use.in_file().Copy(share.begin, share.end, file_row, together.data());
    }
    fault.Report(
        PackPanels(rows, share.begin / kPanelRows, CeilDiv(share.end, kPanelRows), matrix));
  });
  fault.Refuse(use, file_row, file);
}

bool WeightStore::Borrow(const WeightUse& use, std::span<const WeightStore* const> lenders) {
  for (const WeightStore* lender : lenders) {
    for (size_t i = 0; i < lender->packed_.size(); ++i) {
      if (!use.PacksLike(lender->packed_[i])) continue;
      const PackedMatrix* matrix = lender->matrices_[i].get();
      operands_[{use.value, use.kind}] = matrix;
      return true;
    }
  }
  return false;
}

void WeightStore::LoadMatrix(const WeightUse& use, const GgufFile& file, ThreadTeam& team) {
  auto matrix = std::make_unique<PackedMatrix>(*use.format, use.rows, use.width);
  Buffer buffer(Size(static_cast<uint64_t>(matrix->bytes())) + Size(kMatrixSlack), use.tensor.name);
  matrix->data = buffer.data();
  PackMatrix(use, 0, file, team, *matrix);
  file.Release(use.tensor);
  operands_[{use.value, use.kind}] = static_cast<const PackedMatrix*>(matrix.get());
  matrices_.push_back(std::move(matrix));
  packed_.push_back(use);
  buffers_.push_back(std::move(buffer));
}

void WeightStore::LoadExperts(const WeightUse& use, const GgufFile& file, ThreadTeam& team) {
  std::vector<PackedMatrix>& all = experts_[use.value];
  if (all.empty()) {
    all.resize(static_cast<size_t>(use.all_experts),
               PackedMatrix(*use.format, use.rows, use.width));
    operands_[{use.value, use.kind}] = Experts(all);
  }
  const std::span<PackedMatrix> own = std::span(all).subspan(static_cast<size_t>(use.first_expert),
                                                             static_cast<size_t>(use.experts));
  const int64_t bytes = own[0].bytes();
  Buffer buffer(Size(static_cast<uint64_t>(bytes)) * Size(own.size()) + Size(kMatrixSlack),
                use.tensor.name);
  for (size_t e = 0; e < own.size(); ++e) {
    own[e].data = buffer.data() + static_cast<int64_t>(e) * bytes;
    PackMatrix(use, (use.file_expert + static_cast<int64_t>(e)) * use.file_rows, file, team,
               own[e]);
  }
  file.Release(use.tensor);
  buffers_.push_back(std::move(buffer));
}

void WeightStore::LoadVector(const WeightUse& use, const GgufFile& file) {
  std::vector<float> all(static_cast<size_t>(use.tensor.dims[0] * use.tensor.rows()));
  use.format->decode(use.tensor.data.data(), static_cast<int64_t>(all.size()) / use.format->block,
                     all.data());
  std::vector<float> values;
  for (const IndexRun& run : use.part.row_runs) {
    const auto first = all.begin() + use.source.row_begin + run.begin;
    values.insert(values.end(), first, first + run.size);
  }
  auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (bad != values.end()) {
    throw Refused("{}: {}: expected finite weights, found {} at {}", Printable(file.name(), 4096),
                  use.tensor.name, *bad, use.source.row_begin + use.part.Row(bad - values.begin()));
  }
  vectors_.push_back(std::move(values));
  operands_[{use.value, use.kind}] = std::span<const float>(vectors_.back());
}

Operand WeightStore::Get(ValueId value, OperandKind kind) const {
  return operands_.at({value, kind});
}

}  // namespace lockstep
