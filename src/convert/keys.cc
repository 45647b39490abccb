#include "convert/keys.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

Keys::Keys(std::string_view architecture) : prefix_(std::string(architecture) + ".") {
  SetFull("general.architecture", std::string(architecture));
}

void Keys::SetFull(std::string key, Value value) {
  const auto found = std::ranges::find(all_, key, &std::pair<std::string, Value>::first);
  if (found != all_.end()) {
    found->second = std::move(value);
  } else {
    all_.emplace_back(std::move(key), std::move(value));
  }
}

void Keys::Set(std::string_view key, int64_t value) {
  LOCKSTEP_CHECK(value >= 0 && value <= UINT32_MAX, "{} is {}", key, value);
  SetFull(prefix_ + std::string(key), static_cast<uint32_t>(value));
}

void Keys::Set(std::string_view key, double value) {
  SetFull(prefix_ + std::string(key), static_cast<float>(value));
}

void Keys::Set(std::string_view key, bool value) { SetFull(prefix_ + std::string(key), value); }

void Keys::Set(std::string_view key, std::string value) {
  SetFull(prefix_ + std::string(key), std::move(value));
}

void Keys::Set(std::string_view key, const std::vector<int64_t>& values) {
  std::vector<uint32_t> stored;
  for (int64_t value : values) {
    LOCKSTEP_CHECK(value >= 0 && value <= UINT32_MAX, "{} has {}", key, value);
    stored.push_back(static_cast<uint32_t>(value));
  }
  SetFull(prefix_ + std::string(key), GgufArrayData::Of<uint32_t>(stored));
}

void Keys::Set(std::string_view key, const std::vector<double>& values) {
  const std::vector<float> stored(values.begin(), values.end());
  SetFull(prefix_ + std::string(key), GgufArrayData::Of<float>(stored));
}

void Keys::Set(std::string_view key, const std::vector<bool>& values) {
  const auto stored = std::make_unique<bool[]>(values.size());
  std::ranges::copy(values, stored.get());
  SetFull(prefix_ + std::string(key),
          GgufArrayData::Of<bool>(std::span<const bool>(stored.get(), values.size())));
}

void Keys::Remove(std::string_view key) {
  std::erase_if(all_, [&](const auto& pair) { return pair.first == prefix_ + std::string(key); });
}

void Keys::WriteTo(GgufWriter& writer) const {
  for (const auto& [key, value] : all_) {
    std::visit([&writer, &name = key](const auto& content) { writer.Add(name, content); }, value);
  }
}

}  // namespace lockstep
