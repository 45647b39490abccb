#include "gguf/gguf_file.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "gguf/parser.h"
#include "gguf/split.h"

namespace lockstep {
namespace {

constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr uint64_t kMaxSplits = 99999;

// Shards of the set that one name stands for; 1 where the file is whole. Refuses a shard that is
// not the first.
uint32_t SplitCount(const GgufMetadata& metadata, const std::optional<GgufSplitName>& name) {
  const auto count = metadata.OptionalOr<uint32_t>(kSplitCount, 1, {0, kMaxSplits});
  const auto number = metadata.OptionalOr<uint32_t>(kSplitNumber, 0, {0, kMaxSplits});
  if (number != 0 && !name) {
    metadata.Refuse(kSplitNumber,
                    fmt::format("expected the first shard (0), found {}: open the file ending in "
                                "-00001-of-{:05}.gguf",
                                number, count));
  }
  if (count > 1 && !name) {
    metadata.Refuse(kSplitCount, fmt::format("expected a file name ending in -00001-of-{:05}.gguf "
                                             "for {} shards, found another name",
                                             count, count));
  }
  if (name && (number != 0 || name->number != 1)) {
    metadata.Refuse(kSplitNumber, fmt::format("expected the first shard, found shard {}: open {}",
                                              std::max(number + 1, name->number),
                                              Printable(name->PathOf(1), 4096)));
  }
  if (name && name->count != std::max(count, 1u)) {
    metadata.Refuse(kSplitCount,
                    fmt::format("expected {} as in the file's name, found {}", name->count, count));
  }
  return std::max(count, 1u);
}

void RefuseMissingShards(const GgufMetadata& metadata, const GgufSplitName& name) {
  constexpr size_t kNamed = 4;
  std::string missing;
  size_t count = 0;
  for (uint32_t n = 2; n <= name.count; ++n) {
    std::error_code ignored;
    if (std::filesystem::exists(name.PathOf(n), ignored)) continue;
    if (++count <= kNamed) missing += (count > 1 ? ", " : "") + Printable(name.PathOf(n), 4096);
  }
  if (count == 0) return;
  if (count > kNamed) missing += fmt::format(" and {} more", count - kNamed);
  metadata.Refuse(kSplitCount, fmt::format("expected {} shards, found {} missing: {}", name.count,
                                           count, missing));
}

}  // namespace

GgufFile GgufFile::Parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  file.shards_.push_back({file.name_, std::nullopt, bytes});
  GgufParser(&file, 0, &file.metadata_).Parse();
  SplitCount(file.metadata_, std::nullopt);
  file.IndexTensors();
  return file;
}

GgufFile GgufFile::Open(const std::string& path) {
  GgufFile file;
  file.name_ = path;
  file.OpenShard(path, &file.metadata_);
  std::optional<GgufSplitName> name = ParseGgufSplitName(path);
  if (SplitCount(file.metadata_, name) > 1) file.OpenOtherShards(*name);
  file.IndexTensors();
  return file;
}

void GgufFile::OpenShard(const std::string& path, GgufMetadata* metadata) {
  MappedFile map(path);
  std::span<const std::byte> bytes = map.bytes();
  shards_.push_back({path, std::move(map), bytes});
  GgufParser(this, static_cast<uint32_t>(shards_.size() - 1), metadata).Parse();
}

void GgufFile::OpenOtherShards(const GgufSplitName& name) {
  const auto expected_tensors = metadata_.Required<uint64_t>(kSplitTensors);
  RefuseMissingShards(metadata_, name);
  for (uint32_t n = 2; n <= name.count; ++n) {
    GgufMetadata metadata;
    OpenShard(name.PathOf(n), &metadata);
    metadata.Required<uint32_t>(kSplitNumber, {n - 1, n - 1});
    metadata.Required<uint32_t>(kSplitCount, {name.count, name.count});
    metadata.OptionalOr<uint64_t>(kSplitTensors, 0,
                                  {static_cast<int64_t>(expected_tensors), expected_tensors});
  }
  if (tensors_.size() != expected_tensors) {
    metadata_.Refuse(kSplitTensors, fmt::format("expected {} tensors in all shards, found {}",
                                                expected_tensors, tensors_.size()));
  }
}

uint64_t GgufFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.bytes.size();
  return bytes;
}

void GgufFile::Release(const GgufTensor& tensor) const {
  const Shard& shard = shards_[tensor.shard];
  if (!shard.map) return;
  shard.map->Release(static_cast<size_t>(tensor.data.data() - shard.bytes.data()),
                     tensor.data.size());
}

std::string_view GgufFile::NameOf(uint32_t i) const {
  ByteCursor cursor(shards_[tensors_[i].shard].bytes, tensors_[i].info_at, metadata_.name_);
  return cursor.String("tensor name");
}

GgufTensor GgufFile::tensor(size_t i) const {
  const Record& record = tensors_[i];
  const Shard& shard = shards_[record.shard];
  // Checked when the file was opened: reading the entry again cannot fail.
  ByteCursor cursor(shard.bytes, record.info_at, metadata_.name_);
  GgufTensorInfo info = ReadGgufTensorInfo(cursor);
  info.tensor.data = shard.bytes.subspan(record.data_at, info.bytes);
  info.tensor.shard = record.shard;
  return info.tensor;
}

std::span<const std::byte> GgufFile::head(size_t shard) const {
  uint64_t end = shards_[shard].bytes.size();
  for (const Record& record : tensors_) {
    if (record.shard == shard) end = std::min(end, record.data_at);
  }
  return shards_[shard].bytes.first(end);
}

void GgufFile::IndexTensors() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  auto name_of = [this](uint32_t i) { return NameOf(i); };
  std::ranges::sort(by_name_, {}, name_of);
  auto twice = std::ranges::adjacent_find(by_name_, {}, name_of);
  if (twice == by_name_.end()) return;
  const std::string& second =
      shards_[std::max(tensors_[twice[0]].shard, tensors_[twice[1]].shard)].name;
  metadata_.Refuse(NameOf(*twice),
                   fmt::format("expected one tensor of this name, found another in {}",
                               Printable(second, 4096)));
}

std::optional<GgufTensor> GgufFile::FindTensor(std::string_view name) const {
  auto name_of = [this](uint32_t i) { return NameOf(i); };
  auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (found == by_name_.end() || name_of(*found) != name) return std::nullopt;
  return tensor(*found);
}

GgufTensor GgufFile::RequireTensor(std::string_view name) const {
  std::optional<GgufTensor> tensor = FindTensor(name);
  if (!tensor) metadata_.Refuse(name, "tensor is missing");
  return *tensor;
}

}  // namespace lockstep
