// Architectures against reference checkpoints: logits and residual stream as transformers computes
// them, and the same bits however a run is shaped. tests/oracles/make_golden_ggufs.sh converts them
// into the folder that LOCKSTEP_GOLDENS_GGUF names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <variant>

#include "gguf/gguf_writer.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "model_run.h"
#include "text/tokenizer.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

constexpr const char* kGoldens = LOCKSTEP_SOURCE_DIR "/../shared/goldens";
// Of a run in f32 with f32 K/V against one in f32 with another order of summation.
constexpr double kTolerance = 2e-5;
constexpr size_t kHiddenRows[] = {0, 1, 17, 40, 63, 95};

template <typename T>
std::vector<T> ReadTensor(const Safetensors& set, const std::string& name) {
  const SafetensorsTensor& tensor = set.Require(name);
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("LOCKSTEP_GOLDENS_GGUF");
    if (folder == nullptr)
      GTEST_SKIP() << "needs LOCKSTEP_GOLDENS_GGUF (tests/oracles/make_golden_ggufs.sh)";
    path_ = std::string(folder) + "/" + GetParam() + ".gguf";
    const std::string reference =
        std::string(kGoldens) + "/" + GetParam() + "/reference.safetensors";
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is absent";
    if (!std::filesystem::exists(reference)) GTEST_SKIP() << reference << " is absent";
    reference_.emplace(Safetensors::Open(reference));
    tokens_ = ReadTensor<int32_t>(*reference_, "tokens");
  }

  std::string path_;
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
            kTolerance);
  EXPECT_EQ(result.fault, "");
}

TEST_P(Golden, GivesTheReferenceStreamAfterEveryLayer) {
  ModelRun model(path_);
  const RunResult result = model.Run({tokens_}, {.hidden = true})[0];
  size_t layers = 0;
  while (reference_->Find(fmt::format("hidden.{}", layers)) != nullptr) ++layers;
  ASSERT_EQ(result.hidden.size(), layers);
  for (size_t i = 0; i < layers; ++i) {
    const size_t width = result.hidden[i].size() / tokens_.size();
    std::vector<float> rows;
    for (size_t row : kHiddenRows) {
      const auto begin = result.hidden[i].begin() + static_cast<int64_t>(row * width);
      rows.insert(rows.end(), begin, begin + static_cast<int64_t>(width));
    }
    EXPECT_LT(RelativeDifference(rows, ReadTensor<float>(*reference_, fmt::format("hidden.{}", i))),
              kTolerance)
        << "after layer " << i;
  }
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
  // About the file or the largest context alone; Phi-3's original context matters with long factors.
  const std::set<std::string> idle = {prefix + "context_length", prefix + "vocab_size",
                                      "phi3.rope.scaling.original_context_length"};
  TempFolder folder;
  size_t keys = 0;
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    const std::string key(entry.key);
    if (!key.starts_with(prefix) || idle.contains(key)) continue;
    bool noticed = false;
    for (const auto& number : OtherNumbers(entry.value)) {
      WriteWithKey(file, key, number, folder / "changed.gguf");
      try {
        ModelRun changed(folder / "changed.gguf");
        const RunResult result = changed.Run({tokens_}, {})[0];
        noticed |= !(RelativeDifference(result.logits, expected) < 2 * kTolerance);
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
  const Tokenizer original = Tokenizer::FromTokenizerJson(std::string(kGoldens) + "/" + GetParam());
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
}

// Weights of many formats, each with a type of K/V.
constexpr std::pair<const char*, const char*> kFormats[] = {
    {"F16", "F16"},  {"BF16", "BF16"}, {"Q8_0", "Q8_0"}, {"Q4_0", "Q4_0"},
    {"Q5_1", "F16"}, {"Q4_K", "Q5_1"}, {"Q6_K", "F16"}};

TEST_P(Golden, GivesTheSameBitsForEveryShapeOfRunInEveryFormat) {
  TempFolder folder;
  for (const auto& [weights, kv] : kFormats) {
    SCOPED_TRACE(fmt::format("{} with {} K/V", weights, kv));
    const std::string path = folder / (std::string(weights) + ".gguf");
    // Blocks of 256 fit few of these models.
    if (WriteInFormat(GgufFile::Open(path_), *FindFormat(std::string_view(weights)), path) == 0)
      continue;
    ModelRun model(path);
    EXPECT_EQ(ShapeDependence(model, tokens_, kv), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Golden,
                         testing::ValuesIn(std::vector<std::string>{
                             "llama", "llama-bias", "llama-256", "qwen2", "qwen3", "gemma2",
                             "gemma3", "phi3", "mistral3", "granite"}),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::test
