// Architectures against reference checkpoints: logits and residual stream as transformers computes them, and the same bits however a
// run is shaped. Converted by tests/oracles/make_golden_ggufs.sh into the folder that LOCKSTEP_GOLDENS_GGUF names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "model_run.h"
#include "models/models.h"
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

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("LOCKSTEP_GOLDENS_GGUF");
    if (folder == nullptr) GTEST_SKIP() << "needs LOCKSTEP_GOLDENS_GGUF (tests/oracles/make_golden_ggufs.sh)";
    path_ = std::string(folder) + "/" + GetParam() + ".gguf";
    const std::string reference = std::string(kGoldens) + "/" + GetParam() + "/reference.safetensors";
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
  EXPECT_LT(RelativeDifference(result.logits, ReadTensor<float>(*reference_, "logits")), kTolerance);
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
    EXPECT_LT(RelativeDifference(rows, ReadTensor<float>(*reference_, fmt::format("hidden.{}", i))), kTolerance)
        << "after layer " << i;
  }
}

// The same logits, to the bit, for every shape of a run.
void ExpectBitsOfAnyShape(ModelRun& model, const std::vector<int32_t>& tokens, std::string_view kv_type) {
  const std::string kv(kv_type);
  const std::vector<float> expected = model.Run({tokens}, {.kv_type = kv})[0].logits;
  for (Isa isa : AvailableIsas()) {
    for (int threads : {1, 2}) {
      for (int64_t micro_batch : {1, 7, 33, 96}) {
        const auto found = model.Run({tokens}, {.threads = threads, .isa = isa, .micro_batch = micro_batch, .kv_type = kv});
        EXPECT_TRUE(SameBits(found[0].logits, expected))
            << IsaName(isa) << ", " << threads << " threads, micro-batches of " << micro_batch << ", K/V " << kv
            << ": differs by " << RelativeDifference(found[0].logits, expected);
      }
    }
  }
}

// Sequences that share batches, of lengths that end apart, give what each gives alone.
void ExpectBitsWithMates(ModelRun& model, const std::vector<int32_t>& tokens) {
  std::vector<std::vector<int32_t>> sequences = {tokens, {tokens.rbegin(), tokens.rend()}, {tokens.begin() + 5, tokens.begin() + 38}};
  for (int64_t micro_batch : {5, 96}) {
    const auto together = model.Run(sequences, {.threads = 2, .micro_batch = micro_batch});
    for (size_t s = 0; s < sequences.size(); ++s) {
      const RunResult alone = model.Run({sequences[s]}, {})[0];
      EXPECT_TRUE(SameBits(together[s].logits, alone.logits)) << "sequence " << s << ", micro-batches of " << micro_batch;
    }
  }
}

constexpr const char* kFormats[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q6_K"};

TEST_P(Golden, GivesTheSameBitsForEveryShapeOfRun) {
  ModelRun model(path_);
  ExpectBitsOfAnyShape(model, tokens_, "F32");
  ExpectBitsWithMates(model, tokens_);
}

TEST_P(Golden, GivesTheSameBitsForEveryShapeOfRunInEveryFormat) {
  TempFolder folder;
  for (const char* name : kFormats) {
    SCOPED_TRACE(name);
    const std::string path = folder / (std::string(name) + ".gguf");
    WriteInFormat(GgufFile::Open(path_), *FindFormat(std::string_view(name)), path);
    ModelRun model(path);
    ExpectBitsOfAnyShape(model, tokens_, "F16");
    ExpectBitsWithMates(model, tokens_);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Golden,
                         testing::Values("llama", "llama-bias", "llama-256", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mistral3",
                                         "granite"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::test
