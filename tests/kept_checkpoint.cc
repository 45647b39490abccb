#include "kept_checkpoint.h"

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "convert/convert.h"
#include "gguf/safetensors.h"
#include "noise.h"
#include "tensor/half.h"
#include "text/json_text.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

// A tensor in the making: as bytes, which the writer's item refers to.
struct Made {
  std::string name, type;
  std::vector<uint64_t> dims;
  std::vector<std::byte> bytes;
};

std::vector<uint64_t> Dims(const boost::json::value& value) {
  return boost::json::value_to<std::vector<uint64_t>>(value);
}

template <typename T>
void Append(T value, std::vector<std::byte>& bytes) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// offset + scale sqrt(3) u as bfloat16, u by SplitMix64 from the FNV-1a hash of the name.
Made NoiseTensor(const boost::json::array& row) {
  Made made{boost::json::value_to<std::string>(row[0]), "BF16", Dims(row[1]), {}};
  const double scale = row[2].to_number<double>(), offset = row[3].to_number<double>();
  const uint64_t start = NameHash(made.name, 0xcbf29ce484222325);
  uint64_t count = 1;
  for (uint64_t dim : made.dims) count *= dim;
  for (uint64_t i = 1; i <= count; ++i) {
    Append(F32ToBf16(static_cast<float>(offset + scale * std::sqrt(3.0) * Noise(start, i))),
           made.bytes);
  }
  return made;
}

Made IntegerTensor(std::string_view name, const boost::json::array& row) {
  Made made{std::string(name), "I64", Dims(row[0]), {}};
  for (const auto& number : row[1].as_array()) Append(number.to_number<int64_t>(), made.bytes);
  return made;
}

}  // namespace

void WriteCheckpoint(const std::string& kept, const std::string& folder) {
  std::filesystem::copy_file(kept + "/config.json", folder + "/config.json");
  std::filesystem::copy_file(std::string(kKept) + "/tokenizer.json", folder + "/tokenizer.json");
  const auto weights =
      ParseJson("weights.json", ReadFile(kept + "/weights.json", 1 << 24)).as_object();
  std::vector<Made> tensors;
  for (const auto& row : weights.at("tensors").as_array())
    tensors.push_back(NoiseTensor(row.as_array()));
  for (const auto& [name, row] : weights.at("integers").as_object()) {
    tensors.push_back(IntegerTensor(std::string_view(name.data(), name.size()), row.as_array()));
  }
  std::vector<SafetensorsItem> items;
  for (const Made& made : tensors) items.push_back({made.name, made.type, made.dims, made.bytes});
  WriteSafetensors(folder + "/model.safetensors", items);
}

void WriteKeptModel(const GoldenRow& row, const std::string& path) {
  const std::string checkpoint = path + ".checkpoint";
  std::filesystem::create_directory(checkpoint);
  WriteCheckpoint(KeptFolder(row), checkpoint);
  ConvertCheckpoint({.folder = checkpoint, .output = path, .type = "f32"});
}

std::vector<GoldenRow> KeptRows() {
  std::vector<GoldenRow> rows;
  for (const GoldenRow& row : kGoldenRows) {
    if (row.supported && std::filesystem::exists(KeptFolder(row))) rows.push_back(row);
  }
  rows.insert(rows.end(), std::begin(kVariationRows), std::end(kVariationRows));
  return rows;
}

}  // namespace lockstep::test
