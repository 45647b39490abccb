#include "gguf/safetensors_header.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/json_events.h"

namespace lockstep {
namespace {

constexpr SafetensorsType kTypes[] = {
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},    {"U32", 32}, {"F32", 32}, {"I64", 64},    {"U64", 64},
    {"F64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

std::string ShapeText(const SafetensorsTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

// Collects entries; every event that does not fit the one shape that a header has is refused.
class HeaderEvents : public JsonEvents {
 public:
  HeaderEvents(const std::string& file, SafetensorsHeader* header) : file_(file), header_(header) {}

  void OnBegin(int depth, std::string_view kind) override {
    bool object = kind == "an object";
    if (depth == 0 && object) return;
    if (depth == 1 && object) return BeginEntry();
    if (depth == 2 && !object && !in_metadata_ && field_ != Field::kType) return;
    RefuseKind(kind);
  }

  void OnKey(int depth, std::string_view key) override {
    if (depth == 1) {
      FinishEntry();
      item_ = key;
      return;
    }
    if (in_metadata_) {
      metadata_key_ = key;
      return;
    }
    static constexpr std::pair<std::string_view, Field> kFields[] = {
        {"dtype", Field::kType}, {"shape", Field::kShape}, {"data_offsets", Field::kOffsets}};
    auto found = std::ranges::find(kFields, key, &std::pair<std::string_view, Field>::first);
    if (found == std::end(kFields)) {
      Refuse("expected dtype, shape or data_offsets, found {}", Printable(key));
    }
    field_ = found->second;
    if (std::exchange(seen_[static_cast<int>(field_)], true)) {
      Refuse("expected {} once, found it twice", key);
    }
  }

  void OnString(int depth, std::string_view text) override {
    if (depth == 2 && in_metadata_) {
      if (!header_->metadata.emplace(metadata_key_, text).second) {
        Refuse("{}: expected one value, found two", Printable(metadata_key_));
      }
      return;
    }
    if (depth != 2 || field_ != Field::kType) RefuseKind("a string");
    entry_.tensor.type = FindSafetensorsType(text);
    if (entry_.tensor.type == nullptr) Refuse("expected a known dtype, found {}", Printable(text));
  }

  void OnInteger(int depth, uint64_t value) override {
    if (depth != 3) RefuseKind("a number");
    if (field_ == Field::kShape) {
      if (entry_.tensor.shape.size() == kSafetensorsMaxDims) {
        Refuse("expected at most {} dimensions, found more", kSafetensorsMaxDims);
      }
      entry_.tensor.shape.push_back(value);
    } else {
      if (offsets_ == 2) Refuse("expected 2 data_offsets, found more");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    }
  }

  void OnOther(int, std::string_view kind) override { RefuseKind(kind); }

  // Call at the end of the document.
  void FinishEntry() {
    if (std::exchange(in_metadata_, false) || !std::exchange(in_tensor_, false)) return;
    if (!seen_[0] || !seen_[1] || !seen_[2]) {
      Refuse("expected dtype, shape and data_offsets, found {} of them",
             seen_[0] + seen_[1] + seen_[2]);
    }
    if (offsets_ != 2) Refuse("expected 2 data_offsets, found {}", offsets_);
    entry_.tensor.name = item_;
    CheckSize();
    header_->entries.push_back(std::move(entry_));
  }

 private:
  enum class Field { kType, kShape, kOffsets };

  void BeginEntry() {
    if (item_ == kSafetensorsMetadataKey) {
      if (std::exchange(metadata_seen_, true)) Refuse("expected it once, found it twice");
      in_metadata_ = true;
      return;
    }
    if (item_.empty()) Refuse("expected a tensor name, found an empty one");
    in_tensor_ = true;
    entry_ = {};
    offsets_ = 0;
    std::ranges::fill(seen_, false);
  }

  void CheckSize() const {
    const SafetensorsTensor& tensor = entry_.tensor;
    Size bits = tensor.type->bits;
    for (uint64_t dim : tensor.shape) bits = bits * dim;
    // A shape with a 0 in it is empty, however large its other sizes are.
    if (std::ranges::count(tensor.shape, 0u) > 0) bits = 0;
    if (!bits.valid()) Refuse("size overflow: shape {}", ShapeText(tensor));
    uint64_t expected = bits.value_or(0);
    if (expected % 8 != 0) {
      Refuse("expected a whole number of bytes, found {} bits of {}", expected, tensor.type->name);
    }
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != expected / 8) {
      Refuse("expected {} bytes for {} {}, found data_offsets [{}, {}]", expected / 8,
             tensor.type->name, ShapeText(tensor), entry_.begin, entry_.end);
    }
  }

  [[noreturn]] void RefuseKind(std::string_view kind) const {
    if (item_.empty())
      throw Refused("{}: header: expected an object of tensors, found {}", file_, kind);
    static constexpr std::string_view kWanted[] = {"a string as dtype",
                                                   "an array of integers as shape",
                                                   "an array of integers as data_offsets"};
    if (in_metadata_) Refuse("expected strings only, found {}", kind);
    if (!in_tensor_) Refuse("expected an object, found {}", kind);
    Refuse("expected {}, found {}", kWanted[static_cast<int>(field_)], kind);
  }

  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Refused("{}: {}: {}", file_, item_.empty() ? "header" : Printable(item_),
                  fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& file_;
  SafetensorsHeader* header_;
  std::string item_;  // the key of the outermost object
  std::string metadata_key_;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  bool in_tensor_ = false;
  Field field_ = Field::kType;
  bool seen_[3] = {};
  int offsets_ = 0;
  SafetensorsEntry entry_;
};

void CheckNames(const std::vector<SafetensorsEntry>& entries, const std::string& file) {
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) {
    if (!names.insert(entry.tensor.name).second) {
      throw Refused("{}: {}: expected one tensor of this name, found two", file,
                    Printable(entry.tensor.name));
    }
  }
}

// Sorts by place; what follows must start where the one before ends, and the last must end where
// the file does.
void CheckPlaces(std::vector<SafetensorsEntry>* entries, uint64_t data_bytes,
                 const std::string& file) {
  std::ranges::sort(*entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.end, std::string_view(entry.tensor.name));
  });
  uint64_t taken = 0;
  for (const SafetensorsEntry& entry : *entries) {
    if (entry.begin != taken) {
      throw Refused("{}: {}: expected data from byte {} on, found byte {} ({})", file,
                    Printable(entry.tensor.name), taken, entry.begin,
                    entry.begin < taken ? "an overlap" : "a hole");
    }
    if (entry.end > data_bytes) {
      throw Refused("{}: {}: expected {} bytes of data, found {}: the file is cut", file,
                    Printable(entry.tensor.name), entry.end - entry.begin, data_bytes - taken);
    }
    taken = entry.end;
  }
  if (taken != data_bytes) {
    throw Refused("{}: data: expected {} bytes in all, found {}", file, taken, data_bytes);
  }
}

class IndexEvents : public JsonEvents {
 public:
  IndexEvents(const std::string& file, std::map<std::string, std::string>* files)
      : file_(file), files_(files) {}

  void OnKey(int depth, std::string_view key) override {
    if (depth == 1) in_map_ = key == "weight_map";
    if (depth == 2) tensor_ = key;
  }
  void OnBegin(int depth, std::string_view kind) override {
    if (depth == 0 && kind != "an object") Refuse("index", "expected an object, found {}", kind);
    if (!in_map_) return;
    if (depth != 1 || kind != "an object") RefuseKind(depth, kind);
    if (std::exchange(seen_, true)) Refuse("weight_map", "expected it once, found it twice");
  }
  void OnString(int depth, std::string_view text) override {
    if (!in_map_) return;
    if (depth != 2) RefuseKind(depth, "a string");
    const bool plain = !text.empty() && text != "." && text != ".." &&
                       text.find_first_of(std::string_view("/\\\0", 3)) == text.npos;
    if (!plain) Refuse(tensor_, "expected a file name, found \"{}\"", Printable(text));
    if (!files_->emplace(tensor_, text).second) Refuse(tensor_, "expected one file, found two");
  }
  void OnInteger(int depth, uint64_t) override { OnOther(depth, "a number"); }
  void OnOther(int depth, std::string_view kind) override {
    if (depth == 0) Refuse("index", "expected an object, found {}", kind);
    if (in_map_) RefuseKind(depth, kind);
  }

  void Finish() const {
    if (!seen_) Refuse("weight_map", "expected an object, but the key is missing");
  }

 private:
  [[noreturn]] void RefuseKind(int depth, std::string_view kind) const {
    if (depth <= 1) Refuse("weight_map", "expected an object, found {}", kind);
    Refuse(tensor_, "expected a file name, found {}", kind);
  }

  template <typename... Args>
  [[noreturn]] void Refuse(std::string_view item, fmt::format_string<Args...> format,
                           Args&&... args) const {
    throw Refused("{}: {}: {}", file_, Printable(item),
                  fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& file_;
  std::map<std::string, std::string>* files_;
  bool in_map_ = false;
  bool seen_ = false;
  std::string tensor_;
};

}  // namespace

std::span<const SafetensorsType> AllSafetensorsTypes() { return kTypes; }

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  auto found = std::ranges::find(kTypes, name, &SafetensorsType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

SafetensorsHeader ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                         const std::string& file) {
  if (!json.starts_with('{')) {
    throw Refused("{}: header: expected {{ as its first byte, found \"{}\"", file,
                  Printable(json.substr(0, 1)));
  }
  SafetensorsHeader header;
  HeaderEvents events(file, &header);
  WalkJson(json, file + ": header", events);
  events.FinishEntry();
  CheckNames(header.entries, file);
  CheckPlaces(&header.entries, data_bytes, file);
  return header;
}

std::map<std::string, std::string> ParseSafetensorsIndex(std::string_view json,
                                                         const std::string& file) {
  std::map<std::string, std::string> files;
  IndexEvents events(file, &files);
  WalkJson(json, file + ": index", events);
  events.Finish();
  return files;
}

}  // namespace lockstep
