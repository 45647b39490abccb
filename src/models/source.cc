#include "models/source.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostCount = uint64_t{1} << 31;

}  // namespace

ModelSource::ModelSource(const GgufFile& file, const ModelOptions& options)
    : file_(file), architecture_(file.metadata().Required<std::string>("general.architecture")), options_(options) {}

int64_t ModelSource::Count(std::string_view key, uint64_t min) const {
  return metadata().Required<int64_t>(Key(key), {static_cast<int64_t>(min), kMostCount});
}

std::optional<int64_t> ModelSource::OptionalCount(std::string_view key, uint64_t min) const {
  return metadata().Optional<int64_t>(Key(key), {static_cast<int64_t>(min), kMostCount});
}

int64_t ModelSource::next_token_blocks() const {
  constexpr std::string_view kKey = "nextn_predict_layers";
  const int64_t all = Count("block_count"), next_token = OptionalCount(kKey, 0).value_or(0);
  if (next_token >= all) Refuse(kKey, fmt::format("expected less than the {} blocks, found {}", all, next_token));
  return next_token;
}

float ModelSource::Float(std::string_view key) const {
  return ExpectFinite(key, metadata().Required<float>(Key(key)));
}

std::optional<float> ModelSource::OptionalFloat(std::string_view key) const {
  const auto value = metadata().Optional<float>(Key(key));
  if (value) ExpectFinite(key, *value);
  return value;
}

float ModelSource::ExpectFinite(std::string_view key, float value) const {
  if (!std::isfinite(value)) Refuse(key, fmt::format("expected a finite number, found {}", value));
  return value;
}

std::string ModelSource::StringOr(std::string_view key, std::string otherwise) const {
  return metadata().OptionalOr<std::string>(Key(key), std::move(otherwise));
}

bool ModelSource::BoolOr(std::string_view key, bool otherwise) const {
  return metadata().OptionalOr<bool>(Key(key), otherwise);
}

std::vector<int64_t> ModelSource::CountPerLayer(std::string_view key, int64_t layers, uint64_t min) const {
  auto counts = OptionalCountPerLayer(key, layers, min);
  if (!counts) Refuse(key, "expected an integer, but the key is missing");
  return *counts;
}

std::optional<std::vector<int64_t>> ModelSource::OptionalCountPerLayer(std::string_view key, int64_t layers,
                                                                       uint64_t min) const {
  return metadata().OptionalPerItem<int64_t>(Key(key), static_cast<uint64_t>(layers),
                                             {static_cast<int64_t>(min), kMostCount});
}

std::vector<float> ModelSource::OptionalFloatPerLayer(std::string_view key, int64_t layers) const {
  auto numbers = metadata().OptionalPerItem<float>(Key(key), static_cast<uint64_t>(layers));
  if (!numbers) return {};
  for (float number : *numbers) ExpectFinite(key, number);
  return *numbers;
}

int64_t ModelSource::RowLength(std::string_view name) const {
  return static_cast<int64_t>(file_.RequireTensor(name).dims[0]);
}

int64_t ModelSource::RowCount(std::string_view name) const {
  return static_cast<int64_t>(file_.RequireTensor(name).rows());
}

std::vector<float> ModelSource::SmallTensor(std::string_view name) const {
  const GgufTensor tensor = file_.RequireTensor(name);
  if (tensor.type->name != "F32" || tensor.elements() > 65536) {
    throw Refused("{}: {}: expected at most 65536 numbers of type F32, found {} of {}", Printable(file_.name(), 4096),
                  name, tensor.elements(), tensor.type->name);
  }
  std::vector<float> values(tensor.elements());
  std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace lockstep
