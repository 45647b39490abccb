#include "gguf/parser.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "gguf/value.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "GGUF";
// GGUF specification: keys are at most 2^16 - 1 bytes; names get the same bound.
constexpr uint64_t kMaxNameBytes = 65535;
// The shortest possible pair (key of one byte, value of one byte) and directory entry (name of one
// byte, no dims).
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
// More than any process can map: a larger tensor is an overflow in the making.
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 48;

std::string_view ReadName(ByteCursor& cursor, std::string_view what) {
  std::string_view name = cursor.String(what);
  if (name.empty() || name.size() > kMaxNameBytes) {
    cursor.Refuse("expected a {} of 1 to {} bytes, found {}", what, kMaxNameBytes, name.size());
  }
  cursor.SetItemName(name);
  return name;
}

uint64_t ReadIndexedCount(ByteCursor& cursor, uint64_t min_bytes, std::string_view what) {
  uint64_t count = cursor.Count(min_bytes, what);
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  if (count > kMax) cursor.Refuse("expected at most {} {}, found {}", kMax, what, count);
  return count;
}

std::string DimsText(const GgufTensor& tensor) {
  return fmt::format("[{}]", fmt::join(std::span(tensor.dims).first(tensor.dims_count), ", "));
}

uint32_t AlignmentOf(const GgufMetadata& metadata) {
  auto alignment = metadata.OptionalOr<uint32_t>(kGgufAlignmentKey, kGgufDefaultAlignment);
  if (alignment % 8 != 0 || !std::has_single_bit(alignment)) {
    metadata.Refuse(kGgufAlignmentKey,
                    fmt::format("expected a power of two of at least 8, found {}", alignment));
  }
  return alignment;
}

}  // namespace

GgufPair ReadGgufPair(ByteCursor& cursor) {
  GgufPair pair;
  pair.key = ReadName(cursor, "key");
  pair.key_at = cursor.at() - pair.key.size();
  pair.type = ReadGgufValueType(cursor);
  ReadGgufValue(cursor, pair.type, 0);
  return pair;
}

GgufTensorInfo ReadGgufTensorInfo(ByteCursor& cursor) {
  GgufTensorInfo info;
  GgufTensor& tensor = info.tensor;
  tensor.name = ReadName(cursor, "tensor name");
  auto dims_count = cursor.Number<uint32_t>("dimension count");
  if (dims_count > kGgufMaxDims) {
    cursor.Refuse("expected at most {} dimensions, found {}", kGgufMaxDims, dims_count);
  }
  tensor.dims_count = static_cast<int>(dims_count);
  Size elements = 1;
  for (uint32_t i = 0; i < dims_count; ++i) {
    tensor.dims[i] = cursor.Number<uint64_t>("dimension");
    if (tensor.dims[i] == 0)
      cursor.Refuse("expected dimensions above 0, found dimension {} of 0", i);
    elements = elements * tensor.dims[i];
  }
  auto type_id = cursor.Number<uint32_t>("tensor type");
  tensor.type = FindTensorType(type_id);
  if (tensor.type == nullptr)
    cursor.Refuse("expected a known tensor type, found type id {}", type_id);
  info.offset = cursor.Number<uint64_t>("offset");

  if (tensor.dims[0] % tensor.type->block != 0) {
    cursor.Refuse("expected rows of a multiple of {} elements for {}, found {}", tensor.type->block,
                  tensor.type->name, tensor.dims[0]);
  }
  Size bytes = Size(elements.value_or(0) / tensor.type->block) * tensor.type->block_bytes;
  if (!elements.valid() || !bytes.fits(kMaxTensorBytes)) {
    cursor.Refuse("size overflow: expected at most {} bytes, found {} of {}", kMaxTensorBytes,
                  DimsText(tensor), tensor.type->name);
  }
  info.bytes = bytes.value_or(0);
  return info;
}

GgufParser::GgufParser(GgufFile* file, uint32_t shard, GgufMetadata* metadata)
    : file_(file), shard_(shard), metadata_(metadata), cursor_({}, 0, {}) {
  const GgufFile::Shard& source = file->shards_[shard];
  metadata->name_ = Printable(source.name, 4096);
  metadata->bytes_ = source.bytes;
  cursor_ = ByteCursor(source.bytes, 0, metadata->name_);
}

void GgufParser::Parse() {
  ParseHeader();
  ParseMetadata();
  size_t first = file_->tensors_.size();
  ParseDirectory();
  CheckPlaces(first);
}

void GgufParser::ParseHeader() {
  auto magic = cursor_.Bytes(kMagic.size(), "magic");
  std::string_view text(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (text != kMagic) {
    cursor_.Refuse("expected a GGUF file (magic \"GGUF\"), found \"{}\"", Printable(text));
  }
  auto version = cursor_.Number<uint32_t>("version");
  if (version != 2 && version != 3) {
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3) {
      cursor_.Refuse("byte order: expected a little-endian file, found a big-endian one");
    }
    cursor_.Refuse("expected version 2 or 3, found {}", version);
  }
  if (shard_ == 0) file_->version_ = version;
  tensor_count_ = ReadIndexedCount(cursor_, kMinTensorBytes, "tensors");
  entry_count_ = ReadIndexedCount(cursor_, kMinEntryBytes, "metadata pairs");
}

void GgufParser::ParseMetadata() {
  auto& entries = metadata_->entries_;
  entries.reserve(entry_count_);
  for (uint64_t i = 0; i < entry_count_; ++i) {
    cursor_.SetItem("metadata pair", i);
    GgufPair pair = ReadGgufPair(cursor_);
    entries.push_back({pair.key_at, static_cast<uint32_t>(pair.key.size()), pair.type});
  }

  auto& by_key = metadata_->by_key_;
  by_key.resize(entries.size());
  std::iota(by_key.begin(), by_key.end(), 0u);
  auto key_of = [&](uint32_t i) { return metadata_->KeyOf(entries[i]); };
  std::ranges::sort(by_key, {}, key_of);
  auto twice = std::ranges::adjacent_find(by_key, {}, key_of);
  if (twice != by_key.end()) metadata_->Refuse(key_of(*twice), "expected one value, found two");
}

void GgufParser::ParseDirectory() {
  cursor_.SetItem("directory");
  // The header's count was checked against the whole file; what the metadata took is gone now.
  if (tensor_count_ > cursor_.left() / kMinTensorBytes) {
    cursor_.Refuse("expected at most {} tensors in the {} bytes left, found {}",
                   cursor_.left() / kMinTensorBytes, cursor_.left(), tensor_count_);
  }
  auto& tensors = file_->tensors_;
  size_t first = tensors.size();
  tensors.reserve(first + tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    cursor_.SetItem("tensor", i);
    uint64_t info_at = cursor_.at();
    GgufTensorInfo info = ReadGgufTensorInfo(cursor_);
    tensors.push_back({info_at, info.offset, shard_});
  }

  const uint32_t alignment = AlignmentOf(*metadata_);
  const Size data_start = Size(cursor_.at()).AlignUp(alignment);
  for (size_t i = first; i < tensors.size(); ++i) {
    uint64_t& at = tensors[i].data_at;
    ByteCursor entry(metadata_->bytes_, tensors[i].info_at, metadata_->name_);
    GgufTensorInfo info = ReadGgufTensorInfo(entry);
    if (at % alignment != 0) {
      entry.Refuse("expected an offset that is a multiple of {}, found {}", alignment, at);
    }
    Size start = data_start + at;
    if (!(start + info.bytes).AlignUp(alignment).valid()) {
      entry.Refuse("size overflow: expected an offset within the file, found {}", at);
    }
    at = start.value_or(0);
  }
}

// No tensor reaches past the end of the file or into another one.
void GgufParser::CheckPlaces(size_t first) {
  const auto& tensors = file_->tensors_;
  std::vector<uint32_t> order(tensors.size() - first);
  std::iota(order.begin(), order.end(), static_cast<uint32_t>(first));
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(tensors[i].data_at, i); });

  const uint64_t file_bytes = metadata_->bytes_.size();
  uint64_t taken = 0;  // all before this byte belongs to the tensors seen so far
  std::string_view previous;
  for (uint32_t i : order) {
    ByteCursor entry(metadata_->bytes_, tensors[i].info_at, metadata_->name_);
    GgufTensorInfo info = ReadGgufTensorInfo(entry);
    const uint64_t at = tensors[i].data_at;
    if (at < taken) {
      entry.Refuse("expected data of its own from byte {} on, found it at byte {} inside tensor {}",
                   taken, at, Printable(previous));
    }
    if (info.bytes > file_bytes || at > file_bytes - info.bytes) {
      entry.Refuse("expected {} bytes of data at byte {}, found {}: the file is cut", info.bytes,
                   at, file_bytes - std::min(at, file_bytes));
    }
    taken = at + info.bytes;
    previous = info.tensor.name;
  }
}

}  // namespace lockstep
