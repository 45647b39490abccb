// Architectures against reference checkpoints: converted by the product's converter, logits and
// residual stream as transformers computes them, and the same bits however a run is shaped. The rows
// are those of golden_rows.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <variant>

#include "convert/convert.h"
#include "gguf/gguf_writer.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "golden_rows.h"
#include "model_run.h"
#include "text/tokenizer.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

constexpr const char* kGoldens = LOCKSTEP_SOURCE_DIR "/../shared/goldens";

std::string FolderOf(const GoldenRow& row) {
  return std::string(kGoldens) + "/" + std::string(row.name);
}

class Golden : public testing::TestWithParam<GoldenRow> {
 protected:
  void SetUp() override {
    const std::string reference = FolderOf(GetParam()) + "/reference.safetensors";
    if (!std::filesystem::exists(reference)) GTEST_SKIP() << reference << " is absent";
    ConvertCheckpoint({.folder = FolderOf(GetParam()), .output = path_, .type = "f32"});
    reference_.emplace(Safetensors::Open(reference));
    tokens_ = ReadTensor<int32_t>(*reference_, "tokens");
  }

  TempFolder folder_;
  std::string path_ = folder_ / "golden.gguf";
  std::optional<Safetensors> reference_;
  std::vector<int32_t> tokens_;
};

TEST_P(Golden, GivesTheReferenceLogits) {
  ModelRun model(path_);
  const RunResult result = model.Run({tokens_}, {.threads = 2})[0];
  RecordProperty(
      "difference",
      fmt::format("{:.1e}",
                  RelativeDifference(result.logits, ReadTensor<float>(*reference_, "logits"))));
  EXPECT_LT(RelativeDifference(result.logits, ReadTensor<float>(*reference_, "logits")),
            GetParam().tolerance);
  EXPECT_EQ(result.fault, "");
}

TEST_P(Golden, GivesTheReferenceStreamAfterEveryLayer) {
  if (!GetParam().hidden) GTEST_SKIP() << "the reference has no residual stream of one row";
  ModelRun model(path_);
  const RunResult result = model.Run({tokens_}, {.hidden = true})[0];
  size_t layers = 0;
  while (reference_->Find(fmt::format("hidden.{}", layers)) != nullptr) ++layers;
  ASSERT_EQ(result.hidden.size(), layers);
  for (size_t i = 0; i < layers; ++i) {
    const size_t width = result.hidden[i].size() / tokens_.size();
    EXPECT_LT(RelativeDifference(ReferenceRowsOf(result.hidden[i], width), ReadTensor<float>(*reference_, fmt::format("hidden.{}", i))),
              GetParam().tolerance)
        << "after layer " << i;
  }
}

TEST_P(Golden, HasANextTokenBlockWhereItsRowSaysSo) {
  EXPECT_EQ(reference_->Find("mtp.logits") != nullptr, GetParam().next_token);
  if (GetParam().next_token) return;
  ModelRun model(path_);
  EXPECT_NE(MessageOf([&] { model.RunNextToken({tokens_}, {}); })
                .find("nextn_predict_layers: expected a block"),
            std::string::npos);
}

class GoldenNextToken : public Golden {};

TEST_P(GoldenNextToken, GivesTheReferenceLogits) {
  ModelRun model(path_);
  const RunResult result = model.RunNextToken({tokens_}, {.threads = 2, .hidden = true})[0];
  ASSERT_EQ(result.hidden.size(), 1u);
  EXPECT_LT(RelativeDifference(result.logits, ReadTensor<float>(*reference_, "mtp.logits")),
            GetParam().tolerance);
  EXPECT_LT(RelativeDifference(result.hidden[0], ReadTensor<float>(*reference_, "mtp.hidden")),
            GetParam().tolerance);
  EXPECT_EQ(result.fault, "");
}

TEST_P(GoldenNextToken, GivesTheSameBitsForEveryShapeOfRun) {
  ModelRun model(path_);
  const Runner run = [&](const auto& sequences, const RunOptions& options) {
    return model.RunNextToken(sequences, options);
  };
  EXPECT_EQ(ShapeDependence(run, tokens_, "F32"), "");
}

// Copies a file with one of its keys changed.
void WriteWithKey(const GgufFile& file, std::string_view key,
                  const std::variant<uint32_t, float>& value, const std::string& path) {
  GgufWriter writer(path);
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    if (entry.key != key) writer.Add(entry.key, entry.value);
  }
  std::visit([&](auto number) { writer.Add(key, number); }, value);
  for (const GgufTensor& tensor : file.tensors()) {
    writer.AddTensor(tensor.name, tensor.type->id,
                     std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count)));
  }
  for (const GgufTensor& tensor : file.tensors()) writer.Write(tensor.data);
  writer.Finish();
}

// Numbers far enough from the one given, up and down.
std::vector<std::variant<uint32_t, float>> OtherNumbers(const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value.data)) {
    return {static_cast<uint32_t>(*number + 1), static_cast<uint32_t>(*number * 2)};
  }
  if (const auto* number = std::get_if<double>(&value.data)) {
    return {static_cast<float>(*number * 1e6), static_cast<float>(*number / 16)};
  }
  return {};
}

// The control on all of the above: had a key been read wrongly or not at all, the logits would show it.
TEST_P(Golden, DependsOnEveryNumberOfItsFile) {
  const std::vector<float> expected = ReadTensor<float>(*reference_, "logits");
  const GgufFile file = GgufFile::Open(path_);
  const std::string prefix = file.metadata().Required<std::string>("general.architecture") + ".";
  // About the file or the largest context alone, or of the row.
  const auto idle = [&](const std::string& key) {
    const std::string of_row = fmt::format(" {} ", GetParam().idle);
    return key == prefix + "context_length" || key == prefix + "vocab_size" ||
           of_row.find(fmt::format(" {} ", key.substr(prefix.size()))) != of_row.npos;
  };
  size_t keys = 0;
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    const std::string key(entry.key);
    if (!key.starts_with(prefix) || idle(key)) continue;
    bool noticed = false;
    for (const auto& number : OtherNumbers(entry.value)) {
      WriteWithKey(file, key, number, folder_ / "changed.gguf");
      try {
        ModelRun changed(folder_ / "changed.gguf");
        const RunResult result = changed.Run({tokens_}, {})[0];
        noticed |= !(RelativeDifference(result.logits, expected) < 2 * GetParam().tolerance);
      } catch (const Error&) {
        noticed = true;
      }
    }
    keys += !OtherNumbers(entry.value).empty();
    EXPECT_TRUE(noticed || OtherNumbers(entry.value).empty()) << key;
  }
  EXPECT_GE(keys, 8u);
}

TEST_P(Golden, HasTheTokenizerOfItsCheckpoint) {
  const Tokenizer converted = Tokenizer::FromGguf(GgufFile::Open(path_));
  const Tokenizer original = Tokenizer::FromTokenizerJson(FolderOf(GetParam()));
  for (const char* text : {"The weights of a model, read in 1024 blocks", "  x\n\ty",
                           "caf\xC3\xA9 \xF0\x9F\xA6\x99", "<s>a</s>"}) {
    EXPECT_EQ(converted.Encode(text), original.Encode(text)) << text;
    EXPECT_EQ(converted.Encode(text, {.parse_special = true}),
              original.Encode(text, {.parse_special = true}))
        << text;
  }
}

TEST_P(Golden, GivesTheSameBitsForEveryShapeOfRun) {
  ModelRun model(path_);
  EXPECT_EQ(ShapeDependence(model, tokens_, "F32"), "");
  EXPECT_EQ(RankDependence(model, tokens_, "F32"), "");
}

// Weights of many formats, each with a type of K/V.
constexpr std::pair<const char*, const char*> kFormats[] = {
    {"F16", "F16"},  {"BF16", "BF16"}, {"Q8_0", "Q8_0"}, {"Q4_0", "Q4_0"},
    {"Q5_1", "F16"}, {"Q4_K", "Q5_1"}, {"Q6_K", "F16"}};

TEST_P(Golden, GivesTheSameBitsForEveryShapeOfRunInEveryFormat) {
  for (const auto& [weights, kv] : kFormats) {
    SCOPED_TRACE(fmt::format("{} with {} K/V", weights, kv));
    const std::string path = folder_ / (std::string(weights) + ".gguf");
    // Blocks of 256 fit few of these models.
    if (WriteInFormat(GgufFile::Open(path_), *FindFormat(std::string_view(weights)), path) == 0)
      continue;
    ModelRun model(path);
    EXPECT_EQ(ShapeDependence(model, tokens_, kv), "");
    EXPECT_EQ(RankDependence(model, tokens_, kv, 4), "");
  }
}

std::vector<GoldenRow> RowsWith(bool GoldenRow::*flag) {
  std::vector<GoldenRow> rows;
  std::ranges::copy_if(kGoldenRows, std::back_inserter(rows), flag);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Golden, testing::ValuesIn(RowsWith(&GoldenRow::supported)),
                         [](const auto& info) { return TestName(info.param); });
INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenNextToken,
                         testing::ValuesIn(RowsWith(&GoldenRow::next_token)),
                         [](const auto& info) { return TestName(info.param); });

TEST(GoldenRows, AreThoseOfTheFolder) {
  if (!std::filesystem::exists(kGoldens)) GTEST_SKIP() << kGoldens << " is absent";
  std::set<std::string> folders, rows;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  }
  for (const GoldenRow& row : kGoldenRows) rows.emplace(row.name);
  EXPECT_EQ(rows, folders);
}

TEST(GoldenRows, SaySoWhereACheckpointIsSupported) {
  TempFolder folder;
  for (const GoldenRow& row : kGoldenRows) {
    if (row.supported || !std::filesystem::exists(FolderOf(row))) continue;
    const std::string path = folder / (std::string(row.name) + ".gguf");
    EXPECT_NE(MessageOf([&] {
                ConvertCheckpoint({.folder = FolderOf(row), .output = path, .type = "f32"});
                ModelRun model(path);
              }),
              "")
        << row.name << " converts and runs: its row may say so";
  }
}

}  // namespace
}  // namespace lockstep::test
