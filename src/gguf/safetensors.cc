#include "gguf/safetensors.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <set>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/cursor.h"
#include "gguf/safetensors_header.h"

namespace lockstep {
namespace {

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

uint64_t SafetensorsTensor::elements() const { return data.size() * 8 / type->bits; }

void Safetensors::AddFile(File file) {
  const std::string name = Printable(file.name, 4096);
  ByteCursor cursor(file.bytes, 0, name);
  const auto size = cursor.Number<uint64_t>("header length");
  if (size > kSafetensorsMaxHeader) {
    cursor.Refuse("expected at most {} bytes, found {}", kSafetensorsMaxHeader, size);
  }
  auto json = cursor.Bytes(size, "header");
  SafetensorsHeader header = ParseSafetensorsHeader(
      {reinterpret_cast<const char*>(json.data()), json.size()}, cursor.left(), name);
  const auto data = file.bytes.subspan(cursor.at());
  for (SafetensorsEntry& entry : header.entries) {
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    entry.tensor.file = static_cast<uint32_t>(files_.size());
    tensors_.push_back(std::move(entry.tensor));
  }
  metadata_.merge(header.metadata);
  files_.push_back(std::move(file));
}

void Safetensors::AddMapped(const std::string& path) {
  MappedFile map(path);
  std::span<const std::byte> bytes = map.bytes();
  AddFile({path, std::move(map), bytes});
}

void Safetensors::SortTensors() {
  std::ranges::sort(tensors_, {}, &SafetensorsTensor::name);
  auto twice = std::ranges::adjacent_find(tensors_, {}, &SafetensorsTensor::name);
  if (twice == tensors_.end()) return;
  throw Refused("{}: {}: expected one tensor of this name, found another in {}",
                Printable(files_[twice[0].file].name, 4096), Printable(twice->name),
                Printable(files_[twice[1].file].name, 4096));
}

void Safetensors::OpenIndex(const std::string& path) {
  const std::string name = Printable(path, 4096);
  const auto weight_map = ParseSafetensorsIndex(ReadFile(path, kSafetensorsMaxHeader), name);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  std::set<std::string> absent;
  for (const std::string& file : names) {
    if (Exists(folder / file)) {
      AddMapped((folder / file).string());
    } else {
      absent.insert(file);
      warnings_.push_back(fmt::format("{}: {}: the file is missing", name, Printable(file, 4096)));
    }
  }
  SortTensors();
  for (const auto& [tensor, file] : weight_map) {
    if (absent.contains(file)) {
      absent_.emplace(tensor, file);
    } else if (Find(tensor) == nullptr) {
      throw Refused("{}: {}: expected this tensor in {}, found none", name, Printable(tensor),
                    Printable(file, 4096));
    }
  }
}

Safetensors Safetensors::Open(const std::string& path) {
  Safetensors set;
  set.name_ = path;
  const std::filesystem::path folder(path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    if (path.ends_with(".json")) {
      set.OpenIndex(path);
    } else {
      set.AddMapped(path);
    }
  } else if (Exists(folder / kSingleName)) {
    set.AddMapped((folder / kSingleName).string());
  } else if (Exists(folder / kIndexName)) {
    set.OpenIndex((folder / kIndexName).string());
  } else {
    throw Refused("{}: expected {} or {}, found neither", Printable(path, 4096), kSingleName,
                  kIndexName);
  }
  set.SortTensors();
  return set;
}

Safetensors Safetensors::Parse(std::span<const std::byte> bytes, std::string name) {
  Safetensors set;
  set.name_ = name;
  set.AddFile({std::move(name), std::nullopt, bytes});
  set.SortTensors();
  return set;
}

const SafetensorsTensor* Safetensors::Find(std::string_view name) const {
  auto found = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const SafetensorsTensor& Safetensors::Require(std::string_view name) const {
  if (const SafetensorsTensor* tensor = Find(name)) return *tensor;
  auto absent = absent_.find(name);
  if (absent != absent_.end()) {
    throw Refused("{}: {}: expected this tensor in {}, which is missing", Printable(name_, 4096),
                  Printable(name), Printable(absent->second, 4096));
  }
  throw Refused("{}: {}: tensor is missing", Printable(name_, 4096), Printable(name));
}

void Safetensors::Release(const SafetensorsTensor& tensor) const {
  const File& file = files_[tensor.file];
  if (!file.map) return;
  file.map->Release(static_cast<size_t>(tensor.data.data() - file.bytes.data()),
                    tensor.data.size());
}

namespace {

struct HeaderItem {
  std::string_view name, type;
  std::span<const uint64_t> shape;
  uint64_t bytes;
};

// The length and the header of a file. Refused where such a file would not load again.
std::string WriteHeader(const std::string& path, std::span<const HeaderItem> items,
                        const std::map<std::string, std::string>& metadata) {
  auto quoted = [](std::string_view text) {
    return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
  };
  std::string header;
  auto add = [&](std::string_view key, const std::string& value) {
    header += fmt::format("{}{}:{}", header.empty() ? "{" : ",", quoted(key), value);
  };
  if (!metadata.empty()) {
    boost::json::object object;
    for (const auto& [key, value] : metadata) object[key] = value;
    add(kSafetensorsMetadataKey, boost::json::serialize(object));
  }
  uint64_t at = 0;
  for (const HeaderItem& item : items) {
    add(item.name,
        fmt::format(R"({{"dtype":{},"shape":[{}],"data_offsets":[{},{}]}})", quoted(item.type),
                    fmt::join(item.shape, ","), at, at + item.bytes));
    at += item.bytes;
  }
  header += header.empty() ? "{}" : "}";
  header.resize(Size(header.size()).AlignUp(8).value_or(0), ' ');
  // The reader judges what may be written.
  const std::string name = Printable(path, 4096);
  ParseSafetensorsHeader(header, at, name);
  if (header.size() > kSafetensorsMaxHeader) {
    throw Refused("{}: header: expected at most {} bytes, found {}", name, kSafetensorsMaxHeader,
                  header.size());
  }
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header;
}

// 0 where the type or the size is impossible, which WriteHeader() refuses with the shape.
uint64_t PlannedBytes(const SafetensorsPlan& plan) {
  const SafetensorsType* type = FindSafetensorsType(plan.type);
  Size bits = type == nullptr ? 0 : type->bits;
  for (uint64_t size : plan.shape) bits = bits * Size(size);
  return bits.value_or(0) / 8;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::span<const SafetensorsPlan> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::vector<HeaderItem> items;
  for (const SafetensorsPlan& plan : tensors) {
    items.push_back({plan.name, plan.type, plan.shape, PlannedBytes(plan)});
  }
  file_.Write(WriteHeader(path, items, metadata));
  uint64_t at = file_.size();
  for (const HeaderItem& item : items) {
    left_.push_back({at, at + item.bytes});
    at += item.bytes;
  }
}

void SafetensorsWriter::Append(size_t tensor, std::span<const std::byte> bytes) {
  Range& left = left_[tensor];
  LOCKSTEP_CHECK(bytes.size() <= left.end - left.at, "tensor {}: {} bytes for {}", tensor,
                 bytes.size(), left.end - left.at);
  file_.WriteAt(left.at, bytes);
  left.at += bytes.size();
}

void SafetensorsWriter::Commit() {
  for (const Range& left : left_) {
    LOCKSTEP_CHECK(left.at == left.end, "{} bytes are missing", left.end - left.at);
  }
  file_.Commit();
}

void WriteSafetensors(const std::string& path, std::span<const SafetensorsItem> items,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<HeaderItem> header;
  for (const SafetensorsItem& item : items) {
    header.push_back({item.name, item.type, item.shape, item.data.size()});
  }
  const std::string start = WriteHeader(path, header, metadata);
  AtomicFile file(path);
  file.Write(start);
  for (const SafetensorsItem& item : items) file.Write(item.data);
  file.Commit();
}

}  // namespace lockstep
