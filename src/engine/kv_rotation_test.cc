// Rotated caches: the same model, and more of it where the cache has few bits.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <algorithm>
#include <cmath>

#include "engine/evaluator.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

using Rotation = LoadOptions::KvRotation;

class KvRotation : public ::testing::Test {
 protected:
  std::vector<float> Logits(const TinyOptions& tiny, std::string_view type, Rotation rotation) {
    TinyModel model(tiny);
    // Keys and queries with one number that is far larger than the others, as trained models have.
    for (int64_t layer = 0; layer < tiny.layers; ++layer) {
      for (std::string_view name : {"attn_k", "attn_v"}) {
        TinyTensor& tensor = model.tensor(fmt::format("blk.{}.{}.weight", layer, name));
        for (uint64_t i = 0; i < tensor.dims[0]; ++i) tensor.values[3 * tensor.dims[0] + i] *= 30;
      }
    }
    model.Write(folder_ / "tiny.gguf");
    LoadOptions options;
    options.path = folder_ / "tiny.gguf";
    options.threads = 1;
    options.context = 128;
    options.k_type = options.v_type = type;
    options.kv_rotation = rotation;
    Model opened(options);
    rotations_ = std::ranges::count_if(
        opened.graph().nodes, [](const Node& node) { return node.op->name() == "hadamard"; });
    Evaluator evaluator(opened);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 100; ++i) tokens.push_back(3 + i * 37 % 290);
    std::vector<float> logits;
    evaluator.Run(tokens, 0, [&](const EvaluatedRows& rows) {
      logits.insert(logits.end(), rows.logits.begin(), rows.logits.end());
    });
    return logits;
  }

  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
      size += double{b[i]} * b[i];
    }
    return std::sqrt(sum / size);
  }

  TempFolder folder_;
  int64_t rotations_ = 0;
};

TEST_F(KvRotation, ChangesNothingButRoundingWhereTheCacheIsExact) {
  for (int64_t head_dim : {16, 24, 40}) {
    TinyOptions tiny = WindowedOptions();
    tiny.head_dim = head_dim;
    const auto plain = Logits(tiny, "f32", Rotation::kOff);
    EXPECT_EQ(rotations_, 0);
    const auto rotated = Logits(tiny, "f32", Rotation::kOn);
    EXPECT_EQ(rotations_, 4 * tiny.layers);
    // A few roundings of 2^-24 each, through two layers.
    EXPECT_LT(Distance(rotated, plain), 1e-5) << head_dim;
    EXPECT_NE(rotated, plain);
  }
}

TEST_F(KvRotation, KeepsMoreWhereTheCacheHasFewBits) {
  TinyOptions tiny;
  tiny.head_dim = 64;
  const auto exact = Logits(tiny, "f32", Rotation::kAuto);
  EXPECT_EQ(rotations_, 0);
  for (std::string_view type : {"q4_0", "q8_0"}) {
    const auto plain = Logits(tiny, type, Rotation::kOff);
    const auto rotated = Logits(tiny, type, Rotation::kAuto);
    EXPECT_EQ(rotations_, 4 * tiny.layers) << type;
    EXPECT_LT(Distance(rotated, exact), Distance(plain, exact)) << type;
  }
  Logits(tiny, "f16", Rotation::kAuto);
  EXPECT_EQ(rotations_, 0);
}

}  // namespace
}  // namespace lockstep::test
