// Every architecture against logits that are kept here (data/goldens), on weights that are a function of their names: the part of
// goldens_test.cc that any clone can run. data/make_goldens.py says what the files hold.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "convert/convert.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "golden_rows.h"
#include "model_run.h"
#include "noise.h"
#include "tensor/half.h"
#include "text/json_text.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

constexpr const char* kKept = LOCKSTEP_SOURCE_DIR "/tests/data/goldens";

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

// Writes the checkpoint that a kept folder describes.
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

class KeptGolden : public testing::TestWithParam<GoldenRow> {
 protected:
  void SetUp() override {
    const std::string kept = std::string(kKept) + "/" + std::string(GetParam().name);
    std::filesystem::create_directory(folder_ / "checkpoint");
    WriteCheckpoint(kept, folder_ / "checkpoint");
    ConvertCheckpoint(
        {.folder = folder_ / "checkpoint", .output = folder_ / "model.gguf", .type = "f32"});
    reference_.emplace(Safetensors::Open(kept + "/reference.safetensors"));
    tokens_ = ReadTensor<int32_t>(*reference_, "tokens");
  }

  // Against reference rows, whose last is the last there is; and the same bits in smaller batches and on ranks.
  void Expect(std::string_view tensor, const Runner& run) const {
    const auto expected = ReadTensor<float>(*reference_, std::string(tensor));
    const auto logits = run({tokens_}, {.threads = 2})[0].logits;
    EXPECT_LT(RelativeDifference(
                  ReferenceRowsOf(logits, expected.size() / std::size(kReferenceRows)), expected),
              GetParam().tolerance);
    EXPECT_EQ(run({tokens_}, {.micro_batch = 7})[0].logits, logits);
    EXPECT_EQ(RankDependence(run, tokens_, "F32", 4), "");
  }

  TempFolder folder_;
  std::optional<Safetensors> reference_;
  std::vector<int32_t> tokens_;
};

TEST_P(KeptGolden, GivesTheReferenceLogitsForEveryShapeOfRun) {
  ModelRun model(folder_ / "model.gguf");
  Expect("logits", [&](const auto& sequences, const RunOptions& options) {
    return model.Run(sequences, options);
  });
  ASSERT_EQ(reference_->Find("mtp.logits") != nullptr, GetParam().next_token);
  if (!GetParam().next_token) return;
  Expect("mtp.logits", [&](const auto& sequences, const RunOptions& options) {
    return model.RunNextToken(sequences, options);
  });
}

std::vector<GoldenRow> KeptRows() {
  std::vector<GoldenRow> rows;
  for (const GoldenRow& row : kGoldenRows) {
    const bool kept = std::filesystem::exists(std::string(kKept) + "/" + std::string(row.name));
    if (row.supported && kept) rows.push_back(row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Architectures, KeptGolden, testing::ValuesIn(KeptRows()),
                         [](const auto& info) { return TestName(info.param); });

// Drafts aside, every reference checkpoint is kept.
TEST(KeptGoldens, AreThereForEveryArchitecture) {
  size_t drafts = 0;
  for (const GoldenRow& row : kGoldenRows) {
    const bool draft = row.name.ends_with("-assistant") || row.name.ends_with("-dflash");
    drafts += draft;
    EXPECT_TRUE(draft || std::filesystem::exists(std::string(kKept) + "/" + std::string(row.name) +
                                                 "/weights.json"))
        << row.name;
  }
  EXPECT_EQ(drafts, 3u);
}

}  // namespace
}  // namespace lockstep::test
