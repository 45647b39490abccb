#include "convert/moe_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "convert/testing/test_checkpoint.h"

namespace lockstep {
namespace {

using test::ContentOf;
using test::TempFolder;
using test::TestCheckpoint;

TEST(MoeRules, KnowLayersWithExpertsByEverySpelling) {
  struct Case {
    const char* keys;
    std::string sparse;  // of layers 0 .. 5, of which the last is a next-token block
  };
  const Case cases[] = {
      {"{}", "111111"},
      {R"({"first_k_dense_replace": 2})", "001111"},
      {R"({"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse"]})", "010111"},
      {R"({"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse", "dense"]})",
       "010110"},
      {R"({"mlp_only_layers": [0, 3]})", "011011"},
      {R"({"decoder_sparse_step": 2})", "010101"},
      {R"({"moe_layers_enum": "1,3,4"})", "010110"},
      {R"({"moe_layer_start_index": 1, "moe_layer_end_index": 3})", "011100"},
      {R"({"moe_layer_start_index": 0, "moe_layer_interval": 2})", "010100"},
      {R"({"moe_layer_start_index": 1, "moe_layer_end_index": -1})", "011110"},
  };
  for (const Case& c : cases) {
    boost::json::object members = boost::json::parse(c.keys).as_object();
    members["num_hidden_layers"] = 5;
    members["num_nextn_predict_layers"] = 1;
    const Config config("config.json: ", members);
    std::string found;
    for (int64_t layer = 0; layer < BlocksWithNextToken(config); ++layer)
      found += IsSparse({config, layer}) ? '1' : '0';
    EXPECT_EQ(found, c.sparse) << c.keys;
  }
}

TEST(MoeRules, TakeCountsForEachLayerWhereTheyAreOne) {
  for (const auto& [keys, refusal] :
       {std::pair(R"({"num_experts": 8, "moe_topk": [2, 2], "moe_intermediate_size": [32, 32]})",
                  ""),
        std::pair(R"({"num_experts": 8, "moe_topk": 2, "moe_intermediate_size": 32})", ""),
        std::pair(R"({"num_experts": 8, "moe_topk": [2, 3]})",
                  "config.json: num_experts_per_tok: expected one number for all layers")}) {
    boost::json::object members = boost::json::parse(keys).as_object();
    members["num_hidden_layers"] = 2;
    Keys set("x");
    EXPECT_EQ(test::MessageOf([&] { SetMoeKeys(Config("config.json: ", members), set); }), refusal)
        << keys;
    if (*refusal != '\0') continue;
    const std::map<std::string, uint32_t> expected = {
        {"x.expert_count", 8}, {"x.expert_used_count", 2}, {"x.expert_feed_forward_length", 32}};
    std::map<std::string, uint32_t> found;
    for (const auto& [key, value] : set.all()) {
      if (key.starts_with("x.")) found[key] = std::get<uint32_t>(value);
    }
    EXPECT_EQ(found, expected) << keys;
  }
}

// A gpt-oss of two layers and three experts, packed in MXFP4 as releases are, or with the numbers spelt out, which are transposed then.
TestCheckpoint GptOss(bool packed) {
  constexpr uint64_t kExperts = 3, kWidth = 64, kInner = 96;
  TestCheckpoint checkpoint;
  checkpoint.config["architectures"] = {"GptOssForCausalLM"};
  checkpoint.config["model_type"] = "gpt_oss";
  for (const auto& [key, value] :
       {std::pair("num_local_experts", 3), std::pair("num_experts_per_tok", 2),
        std::pair("sliding_window", 8), std::pair("head_dim", 16)}) {
    checkpoint.config[key] = value;
  }
  std::erase_if(checkpoint.tensors,
                [](const auto& entry) { return entry.first.find(".mlp.") != std::string::npos; });
  auto add_experts = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    std::string codes(kExperts * rows * columns / 2, '\0'),
        scales(kExperts * rows * columns / 32, '\0');
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>((i * 89 + i / 16) % 251);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<char>(120 + i % 7);
    if (packed) {
      checkpoint.tensors[name + "_blocks"] = {"U8", {kExperts, rows, columns / 32, 16}, codes};
      checkpoint.tensors[name + "_scales"] = {"U8", {kExperts, rows, columns / 32}, scales};
      return;
    }
    static constexpr float kNumbers[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    std::vector<float> transposed(kExperts * rows * columns);
    for (size_t i = 0; i < transposed.size(); ++i) {
      const int byte = static_cast<uint8_t>(codes[i / 2]),
                code = i % 2 == 0 ? byte & 15 : byte >> 4;
      const float size = std::ldexp(kNumbers[code & 7], 120 + static_cast<int>(i / 32 % 7) - 127);
      const size_t e = i / (rows * columns), row = i / columns % rows, column = i % columns;
      transposed[(e * columns + column) * rows + row] = code & 8 ? -size : size;
    }
    checkpoint.tensors[name] = {"F32", {kExperts, columns, rows}, test::BytesOf(transposed)};
  };
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    checkpoint.Add(layer + "self_attn.sinks", {4});
    checkpoint.Add(layer + "mlp.router.weight", {kExperts, kWidth});
    checkpoint.Add(layer + "mlp.router.bias", {kExperts});
    add_experts(layer + "mlp.experts.gate_up_proj", 2 * kInner, kWidth);
    add_experts(layer + "mlp.experts.down_proj", kWidth, kInner);
    checkpoint.Add(layer + "mlp.experts.gate_up_proj_bias", {kExperts, 2 * kInner});
    checkpoint.Add(layer + "mlp.experts.down_proj_bias", {kExperts, kWidth});
  }
  return checkpoint;
}

TEST(MoeRules, TakeExpertsOfGptOssApartPackedOrNot) {
  TempFolder one, other, own;
  const std::string path = GptOss(true).Convert(one);
  EXPECT_EQ(ContentOf(path), ContentOf(GptOss(false).Convert(other)));
  // Rows of gate and up alternate.
  const GgufFile file = GgufFile::Open(path);
  const std::vector<float> bias = test::FloatsOf(file, "blk.0.ffn_up_exps.bias");
  const auto whole = test::NumberedTensor("model.layers.0.mlp.experts.gate_up_proj_bias", {3, 192});
  for (size_t i = 0; i < bias.size(); ++i) {
    float expected;
    std::memcpy(&expected, &whole.bytes[(i / 96 * 192 + i % 96 * 2 + 1) * sizeof(float)],
                sizeof(float));
    ASSERT_EQ(bias[i], expected) << i;
  }
  // What is packed stays so where the type is the checkpoint's own.
  const GgufFile kept = GgufFile::Open(GptOss(true).Convert(own, "auto"));
  for (const char* name : {"gate", "up", "down"}) {
    const std::string tensor = fmt::format("blk.1.ffn_{}_exps.weight", name);
    ASSERT_EQ(kept.RequireTensor(tensor).type->name, "MXFP4") << name;
    std::vector<float> decoded(3 * 64 * 96);
    FindFormat(std::string_view("MXFP4"))
        ->decode(kept.RequireTensor(tensor).data.data(), std::ssize(decoded) / 32, decoded.data());
    EXPECT_EQ(decoded, test::FloatsOf(file, tensor)) << name;
  }
}

}  // namespace
}  // namespace lockstep
