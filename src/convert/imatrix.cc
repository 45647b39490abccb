#include "convert/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "gguf/gguf_writer.h"

namespace lockstep {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::string_view kChunkCount = "imatrix.chunk_count";
constexpr std::string_view kChunkSize = "imatrix.chunk_size";
constexpr std::string_view kDatasets = "imatrix.datasets";

void CheckNumber(std::string_view file, std::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw Refused("{}: {}: expected finite numbers from 0 up, found {}", Printable(file, 4096),
                Printable(name), value);
}

std::vector<double> ReadF32(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.type->name != "F32") {
    throw Refused("{}: {}: expected F32, found {}", Printable(file.name(), 4096),
                  Printable(tensor.name), tensor.type->name);
  }
  std::vector<double> numbers(tensor.elements());
  for (size_t i = 0; i < numbers.size(); ++i) {
    float number;
    std::memcpy(&number, tensor.data.data() + i * sizeof(float), sizeof(float));
    CheckNumber(file.name(), tensor.name, number);
    numbers[i] = number;
  }
  return numbers;
}

// A cursor over the old format: int32 numbers, names with their length before them, and f32 values.
class OldReader {
 public:
  explicit OldReader(const std::string& path) : path_(path), map_(path), rest_(map_.bytes()) {}

  int32_t Number(std::string_view what, int32_t least) {
    int32_t number;
    std::memcpy(&number, Take(sizeof(number), what).data(), sizeof(number));
    if (number >= least) return number;
    throw Refused("{}: {}: expected at least {}, found {}", Printable(path_, 4096), what, least,
                  number);
  }
  std::string Text(std::string_view what) {
    const auto size = static_cast<size_t>(Number(what, 0));
    const auto bytes = Take(size, what);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::span<const std::byte> Take(size_t size, std::string_view what) {
    if (size > rest_.size()) {
      throw Refused("{}: {}: expected {} bytes, found {} to the end of the file",
                    Printable(path_, 4096), what, size, rest_.size());
    }
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string path_;
  MappedFile map_;
  std::span<const std::byte> rest_;
};

bool IsGguf(const std::string& path) {
  const MappedFile map(path);
  return map.bytes().size() >= 4 && std::memcmp(map.bytes().data(), "GGUF", 4) == 0;
}

}  // namespace

Imatrix Imatrix::Read(const std::string& path) {
  Imatrix matrix = IsGguf(path) ? ReadGguf(path) : ReadOld(path);
  if (matrix.entries_.empty()) {
    throw Refused("{}: expected an importance matrix, found no entry", Printable(path, 4096));
  }
  return matrix;
}

Imatrix Imatrix::ReadGguf(const std::string& path) {
  const GgufFile file = GgufFile::Open(path);
  Imatrix matrix;
  matrix.chunks = file.metadata().OptionalOr<uint32_t>(kChunkCount, 0);
  matrix.chunk_tokens = file.metadata().OptionalOr<uint32_t>(kChunkSize, 512);
  matrix.datasets =
      file.metadata().OptionalArray<std::string>(kDatasets).value_or(std::vector<std::string>{});
  for (GgufTensor tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - kSums.size()));
    ImatrixEntry entry;
    entry.sums = ReadF32(file, tensor);
    entry.counts = ReadF32(file, file.RequireTensor(name + std::string(kCounts)));
    if (entry.sums.size() % entry.counts.size() != 0) {
      throw Refused("{}: {}: expected a multiple of the {} counts, found {} sums",
                    Printable(path, 4096), Printable(name), entry.counts.size(), entry.sums.size());
    }
    matrix.entries_.emplace(name, std::move(entry));
  }
  return matrix;
}

// The older format has one count for all experts, in pieces of text; values are mean squares times
// that count.
Imatrix Imatrix::ReadOld(const std::string& path) {
  OldReader reader(path);
  Imatrix matrix;
  const int32_t entries = reader.Number("number of entries", 1);
  for (int32_t e = 0; e < entries; ++e) {
    const std::string name = reader.Text("name of an entry");
    const int32_t calls = reader.Number("calls of an entry", 0);
    const auto n = static_cast<size_t>(reader.Number("values of an entry", 1));
    const auto bytes = reader.Take(n * sizeof(float), "values of an entry");
    ImatrixEntry entry;
    entry.counts = {static_cast<double>(std::max(calls, 1)) * matrix.chunk_tokens};
    for (size_t i = 0; i < n; ++i) {
      float value;
      std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
      CheckNumber(path, name, value);
      entry.sums.push_back(static_cast<double>(value) * matrix.chunk_tokens);
    }
    matrix.entries_.insert_or_assign(name, std::move(entry));
  }
  if (reader.at_end()) return matrix;
  matrix.chunks = static_cast<uint32_t>(reader.Number("number of pieces", 0));
  if (!reader.at_end()) matrix.datasets.push_back(reader.Text("name of the text"));
  return matrix;
}

void Imatrix::Write(const std::string& path) const {
  GgufWriter writer(path);
  writer.Add("general.type", "imatrix");
  writer.Add(kDatasets, GgufArrayData::OfStrings(std::span<const std::string>(datasets)));
  writer.Add(kChunkCount, chunks);
  writer.Add(kChunkSize, chunk_tokens);
  for (const auto& [name, entry] : entries_) {
    const uint64_t experts = entry.counts.size();
    writer.AddTensor(name + std::string(kSums), 0, {entry.width(), experts});
    writer.AddTensor(name + std::string(kCounts), 0, {1, experts});
  }
  const auto write = [&](const std::vector<double>& numbers) {
    const std::vector<float> rounded(numbers.begin(), numbers.end());
    writer.Write(std::as_bytes(std::span(rounded)));
  };
  for (const auto& [name, entry] : entries_) {
    write(entry.sums);
    write(entry.counts);
  }
  writer.Finish();
}

void Imatrix::Merge(const Imatrix& other, std::string_view who) {
  for (const auto& [name, theirs] : other.entries_) {
    const auto [at, is_new] = entries_.try_emplace(name, theirs);
    if (is_new) continue;
    ImatrixEntry& ours = at->second;
    // The older format does not tell experts apart.
    const bool broadcast = theirs.counts.size() == 1 || ours.counts.size() == 1;
    if (ours.sums.size() != theirs.sums.size() ||
        (ours.counts.size() != theirs.counts.size() && !broadcast)) {
      throw Refused("{}: {}: expected {} sums of {} matrices, found {} of {}", Printable(who, 4096),
                    Printable(name), ours.sums.size(), ours.counts.size(), theirs.sums.size(),
                    theirs.counts.size());
    }
    if (ours.counts.size() < theirs.counts.size()) {
      ours.counts.assign(theirs.counts.size(), ours.counts[0]);
    }
    for (size_t i = 0; i < ours.sums.size(); ++i) ours.sums[i] += theirs.sums[i];
    for (size_t i = 0; i < ours.counts.size(); ++i) {
      ours.counts[i] += theirs.counts[theirs.counts.size() == 1 ? 0 : i];
    }
  }
  datasets.insert(datasets.end(), other.datasets.begin(), other.datasets.end());
  chunks += other.chunks;
}

ImatrixEntry& Imatrix::Add(std::string_view name, uint64_t experts, uint64_t n) {
  const auto [at, is_new] = entries_.try_emplace(std::string(name));
  if (is_new) {
    at->second.sums.assign(experts * n, 0);
    at->second.counts.assign(experts, 0);
  }
  return at->second;
}

const ImatrixEntry* Imatrix::Find(std::string_view name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

std::vector<float> Imatrix::Means(const ImatrixEntry& entry) {
  std::vector<float> means(entry.sums.size(), 1.0f);
  const uint64_t n = entry.width();
  for (size_t i = 0; i < means.size(); ++i) {
    const double count = entry.counts[i / n];
    if (count > 0) means[i] = static_cast<float>(entry.sums[i] / count);
  }
  return means;
}

}  // namespace lockstep
