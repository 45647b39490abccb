// Every architecture on small random models: what it reads, what it refuses, and that nothing of a
// file goes unused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "gguf/temp_folder.h"
#include "model_run.h"
#include "models/latent_attention.h"
#include "models/models.h"
#include "text/tokenizer.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

std::vector<int32_t> Prompt(int64_t length) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(3 + i * 71 % 290));
  return tokens;
}

// As caches of few bits have it.
constexpr ModelOptions kRotated = {.rotate_keys = true, .rotate_values = true};

class ArchitectureOf : public testing::TestWithParam<std::string> {
 protected:
  std::string Write(const TinyModel& model, std::string_view name = "model.gguf") {
    model.Write(folder_ / name);
    return folder_ / name;
  }
  TinyModel Model() { return TinyModel(OptionsFor(GetParam())); }
  std::string model_prefix() {
    return std::get<std::string>(Model().keys.at("general.architecture")) + ".";
  }

  TempFolder folder_;
};

TEST_P(ArchitectureOf, RunsWithTheSameBitsForEveryShape) {
  const std::string plain = Write(Model());
  struct Row {
    const char* weights;
    const char* kv;
    ModelOptions options;
  };
  for (const auto& [weights, kv, options] :
       {Row{"F32", "F32", {}}, Row{"Q8_0", "F16", {}}, Row{"Q4_0", "Q8_0", kRotated}}) {
    SCOPED_TRACE(weights);
    const std::string path = folder_ / (std::string(weights) + ".gguf");
    WriteInFormat(GgufFile::Open(plain), *FindFormat(std::string_view(weights)), path);
    ModelRun model(path, options);
    EXPECT_EQ(ShapeDependence(model, Prompt(70), kv), "");
  }
}

TEST_P(ArchitectureOf, RunsWithTheSameBitsOnAnyRanks) {
  const std::string plain = Write(Model());
  for (const auto& [weights, kv] : {std::pair("F32", "F32"), std::pair("Q4_0", "Q8_0")}) {
    SCOPED_TRACE(weights);
    const std::string path = folder_ / (std::string(weights) + ".gguf");
    WriteInFormat(GgufFile::Open(plain), *FindFormat(std::string_view(weights)), path);
    ModelRun model(path, kv == std::string_view("F32") ? ModelOptions{} : kRotated);
    EXPECT_EQ(RankDependence(model, Prompt(70), kv), "");
  }
}

// Of scores that are nearly equal others may be chosen: here all are.
TinyOptions WithoutChoices(TinyOptions options) {
  if (options.index_top != 0) options.index_top = 64;
  if (options.experts.count != 0) options.experts.used = options.experts.count;
  return options;
}

// A rotation keeps dot products, and is undone behind attention. All that is cached is rotated but
// rows that are weighted number by number when they are pooled.
TEST_P(ArchitectureOf, IsTheSameWithRotatedHeads) {
  const std::string path = Write(TinyModel(WithoutChoices(OptionsFor(GetParam()))));
  ModelRun plain(path), rotated(path, kRotated);
  const auto is_rotated = [&](ValueId id) {
    return std::ranges::any_of(rotated.graph().nodes, [&](const Node& node) {
      return node.op->name() == "hadamard" && node.output == id;
    });
  };
  for (const Node& node : rotated.graph().nodes) {
    const std::string_view op = node.op->name();
    if (op == "kv_append") {
      const std::string& state = rotated.graph().value(node.inputs[node.inputs.size() / 2]).name;
      for (size_t part = 0; part < node.inputs.size() / 2; ++part)
        EXPECT_NE(is_rotated(node.inputs[part]), state.find("raw") != state.npos) << state;
    } else if (op == "attention" || op == "gathered_attention" || op == "select_keys") {
      EXPECT_TRUE(is_rotated(node.inputs[0])) << rotated.graph().value(node.output).name;
    }
  }
  const std::vector<float> expected = plain.Run({Prompt(70)}, {})[0].logits;
  EXPECT_LT(RelativeDifference(rotated.Run({Prompt(70)}, {})[0].logits, expected), 1e-5);
}

TEST_P(ArchitectureOf, RunsQuantisedNearToItsPlainSelf) {
  const TinyOptions options = WithoutChoices(OptionsFor(GetParam()));
  const std::string plain = Write(TinyModel(options));
  ModelRun reference(plain);
  const RunResult expected = reference.Run({Prompt(40)}, {})[0];
  for (float logit : expected.logits) ASSERT_TRUE(std::isfinite(logit));
  const std::string path = folder_ / "q8_0.gguf";
  WriteInFormat(GgufFile::Open(plain), *FindFormat(std::string_view("Q8_0")), path);
  ModelRun quantised(path);
  // Codes of weights and of activations are each off by up to 1/254 of their block's largest, about
  // 0.5 % of a typical one; fewer than 30 multiplications in a row add up to less than
  // 0.5 % * 2 * sqrt(30).
  EXPECT_LT(RelativeDifference(quantised.Run({Prompt(40)}, {})[0].logits, expected.logits), 0.055);
}

TEST_P(ArchitectureOf, UsesEveryTensorOfItsFile) {
  const TinyModel model = Model();
  ModelRun reference(Write(model));
  const std::vector<float> expected = reference.Run({Prompt(24)}, {})[0].logits;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    TinyModel changed = model;
    // Not by one factor, which a norm would take back.
    std::vector<float>& values = changed.tensors[i].values;
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = values[j] * (1.25f + 0.25f * static_cast<float>(j % 3)) + 0.05f;
    }
    ModelRun run(Write(changed, "changed.gguf"));
    EXPECT_GT(RelativeDifference(run.Run({Prompt(24)}, {})[0].logits, expected), 1e-4)
        << model.tensors[i].name;
  }
}

// Without a fused tensor, what is missing is the first of its parts.
std::string FirstPartOf(std::string tensor, const TinyOptions& options) {
  using Parts = std::vector<std::pair<std::string_view, std::string_view>>;
  const Parts parts = options.fused ? Parts{{"attn_qkv", "attn_q"}, {"ffn_up", "ffn_gate"}}
                      : options.mixer == TinyOptions::Mixer::kWovenDeltaNet
                          ? Parts{{"ssm_in", "attn_qkv"}, {"ssm_ba", "ssm_beta"}}
                          : Parts{};
  for (const auto& [fused, part] : parts) {
    if (const size_t at = tensor.find(fused); at != tensor.npos)
      tensor.replace(at, fused.size(), part);
  }
  return tensor;
}

// Keys that a file may leave out, in the architectures that read them.
struct OptionalKey {
  const char *architecture, *key;
  float number;
};
constexpr OptionalKey kOptionalKeys[] = {{"muse-glimmer", "attention.post_norm_rms_epsilon", 0.3f}};

TEST_P(ArchitectureOf, DependsOnEveryNumberOfItsKeys) {
  const auto logits = [&](const TinyModel& model) {
    return ModelRun(Write(model)).Run({Prompt(40)}, {})[0].logits;
  };
  const std::vector<float> expected = logits(Model());
  const TinyModel model = Model();
  const std::string prefix = model_prefix();
  std::map<std::string, float> changed;
  for (const auto& [key, value] : model.keys) {
    const float* number = std::get_if<float>(&value);
    if (number == nullptr || !key.starts_with(prefix)) continue;
    changed[key] = key.ends_with("epsilon") ? 0.3f : *number == 0 ? 0.5f : *number * 1.5f;
  }
  for (const OptionalKey& row : kOptionalKeys) {
    if (GetParam() == row.architecture) changed[prefix + row.key] = row.number;
  }
  for (const auto& [key, number] : changed) {
    TinyModel other = Model();
    other.keys[key] = number;
    EXPECT_FALSE(SameBits(logits(other), expected)) << key;
  }
}

TEST_P(ArchitectureOf, RefusesAFileWithoutOneOfItsTensors) {
  const TinyModel model = Model();
  for (const TinyTensor& tensor : model.tensors) {
    // Biases and an output head of its own are a file's choice.
    if (tensor.name.ends_with(".bias") || tensor.name == "output.weight") continue;
    TinyModel changed = model;
    changed.Remove(tensor.name);
    const std::string path = Write(changed);
    const std::string text = MessageOf([&] { ModelRun(path).Run({{3}}, {}); });
    std::string missing = FirstPartOf(tensor.name, OptionsFor(GetParam()));
    // The norm before the feed-forward has two names.
    const size_t norm = missing.find(OptionsFor(GetParam()).ff_norm);
    if (norm != missing.npos && !OptionsFor(GetParam()).ff_norm.empty())
      missing = missing.substr(0, norm) + "ffn_norm.weight";
    EXPECT_EQ(text, fmt::format("{}: {}: tensor is missing", path, missing));
  }
}

TEST_P(ArchitectureOf, RefusesTensorsOfOtherSizes) {
  const TinyModel model = Model();
  for (const TinyTensor& tensor : model.tensors) {
    for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
      // The embedding's rows are the vocabulary, whatever their number.
      if (tensor.name == "token_embd.weight" && axis == 1 &&
          model.tensors[2].name != "output.weight")
        continue;
      // A table of n-grams has rows enough.
      if (tensor.name == "per_layer_token_embd.weight" && axis == 1) continue;
      TinyModel changed = model;
      std::vector<uint64_t> dims = tensor.dims;
      dims[axis] += 1;
      changed.Resize(tensor.name, dims);
      const std::string text = MessageOf([&] { ModelRun(Write(changed)).Run({{3}}, {}); });
      const bool vocabulary = tensor.name == "token_embd.weight" && axis == 1;
      // The first of the other tensors that have a row for each token.
      const bool by_token = vocabulary && text.find("ffn_gate_tid2eid") != text.npos;
      EXPECT_TRUE(by_token || text.find(vocabulary ? "output.weight" : tensor.name) != text.npos)
          << text;
      EXPECT_NE(text.find("expected"), text.npos) << text;
      EXPECT_EQ(text.find('\n'), text.npos) << text;
    }
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Architecture& row : Architectures()) names.emplace_back(row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ArchitectureOf, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Why a changed F1 is refused, or "" where it runs.
std::string RefusalOf(const std::function<void(TinyModel&)>& change,
                      const TinyOptions& options = {}) {
  TempFolder folder;
  TinyModel model(options);
  change(model);
  model.Write(folder / "m.gguf");
  try {
    ModelRun run(folder / "m.gguf");
    run.Run({Prompt(9)}, {});
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused) << error.what();
    std::string text = error.what();
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    const std::string path = (folder / "m.gguf") + ": ";
    EXPECT_TRUE(text.starts_with(path)) << text;
    return text.substr(std::min(text.size(), path.size()));
  }
}

// Older files of Mixtral.
TEST(Architectures, ReadExpertsThatHaveTensorsOfTheirOwn) {
  TempFolder folder;
  TinyOptions options;
  options.experts = {.count = 6, .width = 96};
  TinyModel stacked(options);
  options.experts.apart = true;
  TinyModel apart(options);
  for (TinyTensor& tensor : apart.tensors) {
    const size_t dot = tensor.name.find(".", tensor.name.find(".ffn_") + 1);
    if (tensor.name.find(".ffn_") == tensor.name.npos || !std::isdigit(tensor.name[dot + 1]))
      continue;
    const auto expert = static_cast<size_t>(tensor.name[dot + 1] - '0');
    const TinyTensor& all = stacked.tensor(tensor.name.substr(0, dot) + "_exps.weight");
    std::copy_n(all.values.begin() + static_cast<int64_t>(expert * tensor.values.size()),
                tensor.values.size(), tensor.values.begin());
  }
  stacked.Write(folder / "stacked.gguf");
  apart.Write(folder / "apart.gguf");
  ModelRun one(folder / "stacked.gguf"), other(folder / "apart.gguf");
  EXPECT_TRUE(SameBits(one.Run({Prompt(20)}, {})[0].logits, other.Run({Prompt(20)}, {})[0].logits));
}

// llama.cpp's files of these do not say that the weights of the chosen experts add up to one.
TEST(Architectures, NormaliseExpertWeightsWhereFilesDoNotSay) {
  TempFolder folder;
  for (const char* architecture : {"ernie4_5-moe", "hunyuan-moe", "mellum", "qwen35moe", "qwen3moe",
                                   "qwen3next", "qwen4exp"}) {
    SCOPED_TRACE(architecture);
    TinyModel model(OptionsFor(architecture));
    const auto logits = [&] {
      model.Write(folder / "model.gguf");
      return ModelRun(folder / "model.gguf").Run({Prompt(40)}, {})[0].logits;
    };
    model.keys.erase(std::string(architecture) + ".expert_weights_norm");
    const std::vector<float> unsaid = logits();
    model.key("expert_weights_norm") = true;
    EXPECT_TRUE(SameBits(logits(), unsaid));
    model.key("expert_weights_norm") = false;
    EXPECT_FALSE(SameBits(logits(), unsaid));
  }
}

TEST(Architectures, ReadGateAndUpOfExpertsFromOneTensor) {
  TempFolder folder;
  TinyOptions options;
  options.experts = {.count = 6, .width = 96};
  TinyModel model(options);
  model.Write(folder / "two.gguf");
  for (int layer : {0, 1}) {
    const std::string block = fmt::format("blk.{}.", layer);
    const TinyTensor gate = model.tensor(block + "ffn_gate_exps.weight"),
                     up = model.tensor(block + "ffn_up_exps.weight");
    TinyTensor both{block + "ffn_gate_up_exps.weight", {64, 2 * 96, 6}, {}};
    for (int64_t e = 0; e < 6; ++e) {
      for (const TinyTensor* half : {&gate, &up}) {
        const auto begin = half->values.begin() + e * 64 * 96;
        both.values.insert(both.values.end(), begin, begin + 64 * 96);
      }
    }
    model.Remove(gate.name);
    model.Remove(up.name);
    model.tensors.push_back(both);
  }
  model.Write(folder / "one.gguf");
  ModelRun two(folder / "two.gguf"), one(folder / "one.gguf");
  EXPECT_TRUE(SameBits(two.Run({Prompt(20)}, {})[0].logits, one.Run({Prompt(20)}, {})[0].logits));
}

TEST(Architectures, RefuseExpertsThatCannotBe) {
  struct Case {
    const char* key;
    uint32_t value;
    const char* expected;
  };
  const Case cases[] = {
      {"expert_used_count", 7,
       "llama.expert_used_count: expected at most 64 of at most 32768 experts, found 7 of 6"},
      {"expert_used_count", 0, "llama.expert_used_count: "},
      {"expert_count", 1u << 30, "llama.expert_used_count: "},
      {"expert_count", 5, "blk.0.ffn_gate_inp.weight: expected [64, 5], found [64, 6]"},
      {"expert_feed_forward_length", 64,
       "blk.0.ffn_gate_exps.weight: expected [64, 384], found [64, 192]"},
      {"expert_group_count", 4, "llama.expert_group_count: "},
      {"expert_group_count", 100, "llama.expert_group_count: "},
      {"expert_gating_func", 9, "llama.expert_gating_func: expected 1 to 4, found 9"},
      {"leading_dense_block_count", 1, "blk.0.ffn_gate.weight: tensor is missing"},
      {"nextn_predict_layers", 2,
       "llama.nextn_predict_layers: expected less than the 2 blocks, found 2"},
  };
  TinyOptions options;
  options.experts.count = 6;
  EXPECT_EQ(RefusalOf([](TinyModel&) {}, options), "");
  for (const Case& c : cases) {
    const std::string text = RefusalOf([&](TinyModel& m) { m.key(c.key) = c.value; }, options);
    EXPECT_TRUE(text.starts_with(c.expected)) << c.key << ": " << text;
  }
}

// Absorbed and expanded are one function summed in other orders: fewer than 1000 sums in a row, each
// of at most 64 terms, err by less than 64 sqrt(1000) units of 2^-24 together.
TEST(LatentAttention, IsTheSameInBothForms) {
  for (const char* architecture : {"deepseek2", "mistral4"}) {
    TempFolder folder;
    const std::string path = folder / "m.gguf";
    TinyModel(OptionsFor(architecture)).Write(path);
    ModelRun absorbed(path);
    const GgufFile file = GgufFile::Open(path);
    const ModelSource source(file, ModelOptions{});
    DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
    LatentAttentionSpec latent = ReadLatentAttention(source, spec);
    latent.form = LatentForm::kExpanded;
    UseLatentAttention(spec, latent);
    ModelRun expanded(path, BuildDecoder(source, spec));
    EXPECT_GT(expanded.graph().states[0].kv_heads, absorbed.graph().states[0].kv_heads);
    const std::vector<float> one = absorbed.Run({Prompt(70)}, {})[0].logits;
    const std::vector<float> other = expanded.Run({Prompt(70)}, {})[0].logits;
    EXPECT_LT(RelativeDifference(one, other), 64 * std::sqrt(1000.0) * 0x1p-24) << architecture;
  }
}

TEST(LatentAttention, RefusesSizesThatCannotBe) {
  struct Case {
    const char* architecture;
    const char* key;
    uint32_t value;
  };
  const Case cases[] = {{"deepseek2", "attention.kv_lora_rank", 0},
                        {"deepseek2", "attention.kv_lora_rank", 1009},
                        {"deepseek2", "attention.head_count_kv", 2},
                        {"deepseek2", "attention.key_length", 47},
                        {"deepseek2", "attention.key_length_mla", 16},
                        {"deepseek2", "rope.dimension_count", 48},
                        {"deepseek32", "attention.indexer.key_length", 8},
                        {"deepseek32", "attention.indexer.key_length", 1025},
                        {"deepseek32", "attention.indexer.top_k", 0},
                        {"deepseek32", "attention.indexer.top_k", 65537},
                        {"deepseek32", "attention.indexer.kpool", 3},
                        {"deepseek4", "attention.output_group_count", 3},
                        {"deepseek4", "attention.indexer.key_length", 4},
                        {"deepseek4", "hyper_connection.count", 65}};
  for (const Case& c : cases) {
    const std::string text =
        RefusalOf([&](TinyModel& m) { m.key(c.key) = c.value; }, OptionsFor(c.architecture));
    EXPECT_TRUE(text.starts_with(c.architecture)) << c.key << ": " << text;
  }
  // Without ranks of queries there is nothing that an indexer's could be made from.
  EXPECT_NE(RefusalOf([](TinyModel& m) { m.key("attention.q_lora_rank") = uint32_t{0}; },
                      OptionsFor("deepseek32")),
            "");
}

TEST(Architectures, AreNamedWhereAFileIsOfAnother) {
  std::string known;
  for (const std::string& name : Names()) known += name + ", ";
  EXPECT_EQ(RefusalOf([](TinyModel& m) { m.keys["general.architecture"] = "mam\nba"; }),
            "general.architecture: expected one of " + known + "found \"mam\\x0Aba\"");
}

TEST(Architectures, StandByAscendingName) {
  const auto rows = Architectures();
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1].name, rows[i].name);
}

struct Refusal {
  const char* key;
  TinyValue value;
  const char* text;  // after "FILE: llama."
};

TEST(Architectures, RefuseKeysThatDoNotFit) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Refusal refusals[] = {
      {"block_count", uint32_t{0}, "block_count: expected a value from 1 to 4294967295, found 0"},
      {"block_count", uint32_t{513},
       "block_count: expected at most 21, the number of tensors, found 513"},
      {"block_count", uint32_t{1000000},
       "block_count: expected at most 21, the number of tensors, found 1000000"},
      {"block_count", uint32_t{4294967295},
       "block_count: expected at most 21, the number of tensors, found 4294967295"},
      {"block_count", "two", "block_count: expected an integer, found a string"},
      {"attention.head_count", uint32_t{0}, "attention.head_count: expected"},
      {"attention.head_count", uint32_t{3},
       "attention.head_count: expected a multiple of the 2 KV heads of layer 0, found 3"},
      {"attention.head_count_kv", uint32_t{0}, "attention.head_count_kv: expected"},
      {"attention.head_count_kv", uint32_t{3},
       "attention.head_count: expected a multiple of the 3 KV heads of layer 0, found 4"},
      {"attention.head_count", std::vector<int32_t>{4, 4, 4}, "attention.head_count: expected"},
      {"attention.head_count", std::vector<int32_t>{4, -4}, "attention.head_count: "},
      {"attention.key_length", uint32_t{0}, "attention.key_length: expected"},
      {"attention.key_length", uint32_t{1025},
       "attention.key_length: expected keys and values of 1 to 1024 a head"},
      {"rope.dimension_count", uint32_t{18}, "attention.key_length: expected"},
      {"attention.layer_norm_rms_epsilon", kNan,
       "attention.layer_norm_rms_epsilon: expected a finite number, found nan"},
      {"attention.layer_norm_rms_epsilon", -1.f,
       "attention.layer_norm_rms_epsilon: expected at least 0, found -1"},
      {"attention.layer_norm_rms_epsilon", "small", "attention.layer_norm_rms_epsilon: expected"},
      {"attention.scale", kNan, "attention.scale: expected a finite number, found nan"},
      {"rope.scaling.type", "spiral",
       "rope.scaling.type: expected none, linear, yarn or longrope, found \"spiral\""},
      {"expert_count", uint32_t{8},
       "expert_used_count: expected an integer, but the key is missing"},
      {"feed_forward_length", uint32_t{0}, "feed_forward_length: expected"},
      {"embedding_length", uint32_t{4294967295}, "embedding_length: expected"},
      {"context_length", "long", "context_length: expected"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.key);
    const std::string text = RefusalOf([&](TinyModel& m) { m.key(refusal.key) = refusal.value; });
    EXPECT_TRUE(text.starts_with("llama." + std::string(refusal.text))) << text;
  }
}

TEST(Architectures, RefuseRotaryKeysThatDoNotFit) {
  EXPECT_NE(RefusalOf([](TinyModel& m) { m.key("rope.dimension_count") = uint32_t{7}; }), "");
  EXPECT_NE(RefusalOf([](TinyModel& m) { m.key("rope.freq_base") = 0.f; }), "");
  EXPECT_NE(RefusalOf([](TinyModel& m) {
              m.key("rope.freq_base") = std::numeric_limits<float>::infinity();
            }),
            "");
  auto yarn = [](float factor, float fast) {
    return [=](TinyModel& m) {
      m.key("rope.scaling.type") = "yarn";
      m.key("rope.scaling.factor") = factor;
      m.key("rope.scaling.yarn_beta_fast") = fast;
    };
  };
  EXPECT_NE(RefusalOf(yarn(0, 32)), "");
  EXPECT_NE(RefusalOf(yarn(4, 0.5f)), "");
  EXPECT_EQ(RefusalOf(yarn(4, 32)), "");
  EXPECT_EQ(RefusalOf([](TinyModel& m) { m.key("rope.scaling.type") = "longrope"; }),
            "rope_factors_long.weight: tensor is missing");
  EXPECT_NE(RefusalOf([](TinyModel& m) {
              m.tensors.push_back({"rope_freqs.weight", {3}, {1, 1, 1}});
            }),
            "");
  EXPECT_NE(RefusalOf([](TinyModel& m) {
              m.tensors.push_back({"rope_freqs.weight", {8}, {1, 1, 1, 0, 1, 1, 1, 1}});
            }),
            "");
}

TEST(Architectures, RefuseEachMissingKeyByItsName) {
  for (const char* key : {"block_count", "context_length", "embedding_length",
                          "feed_forward_length", "attention.head_count"}) {
    EXPECT_EQ(RefusalOf([&](TinyModel& m) { m.keys.erase("llama." + std::string(key)); }),
              fmt::format("llama.{}: expected an integer, but the key is missing", key));
  }
  EXPECT_EQ(RefusalOf([](TinyModel& m) { m.keys.erase("llama.attention.layer_norm_rms_epsilon"); }),
            "llama.attention.layer_norm_rms_epsilon: expected a float, but the key is missing");
}

TEST(Architectures, RefuseWeightsThatAreNotFinite) {
  for (const char* name : {"blk.1.ffn_down.weight", "blk.0.attn_norm.weight", "output.weight"}) {
    const std::string text = RefusalOf(
        [&](TinyModel& m) { m.tensor(name).values[70 % m.tensor(name).values.size()] = INFINITY; });
    EXPECT_TRUE(text.starts_with(std::string(name) + ": expected finite weights")) << text;
  }
}

TEST(Architectures, RefuseExpertsOfOnesThatAreDense) {
  EXPECT_EQ(
      RefusalOf([](TinyModel& m) { m.key("expert_count") = uint32_t{8}; }, OptionsFor("qwen3")),
      "qwen3.expert_count: expected 0, as this architecture is dense here, found 8");
}

TEST(Architectures, LoadDenseFilesThatSpeakOfNoExperts) {
  EXPECT_EQ(RefusalOf([](TinyModel& m) {
              m.key("expert_count") = uint32_t{0};
              m.key("expert_used_count") = uint32_t{0};
            }),
            "");
}

TEST(Architectures, LoadAsManyLayersAsThereAre) {
  TinyOptions options;
  options.layers = 513;
  options.width = 32;
  options.ff_width = 32;
  options.heads = 2;
  options.kv_heads = 1;
  EXPECT_EQ(RefusalOf([](TinyModel&) {}, options), "");
  options.layers = 1025;
  EXPECT_EQ(RefusalOf([](TinyModel&) {}, options),
            "llama.block_count: expected at most 1024, found 1025");
}

TEST(Architectures, TakeHeadsOfEachLayerFromAnArray) {
  TempFolder folder;
  TinyModel model{TinyOptions{}};
  model.Write(folder / "number.gguf");
  model.key("attention.head_count") = std::vector<int32_t>{4, 4};
  model.key("attention.head_count_kv") = std::vector<int32_t>{2, 2};
  model.key("feed_forward_length") = std::vector<int32_t>{96, 96};
  model.Write(folder / "array.gguf");
  ModelRun number(folder / "number.gguf"), array(folder / "array.gguf");
  EXPECT_TRUE(
      SameBits(array.Run({Prompt(20)}, {})[0].logits, number.Run({Prompt(20)}, {})[0].logits));
}

TEST(Architectures, SeeAsManyPositionsAsTheWindowSaysIncludingTheirOwn) {
  TempFolder folder;
  TinyOptions options = OptionsFor("phi3");
  options.layers = 1;
  TinyModel(options).Write(folder / "m.gguf");
  ModelRun model(folder / "m.gguf");
  std::vector<int32_t> prompt = Prompt(30);
  const std::vector<float> before = model.Run({prompt}, {})[0].logits;
  constexpr size_t kChanged = 11, kWindow = 8;
  prompt[kChanged] = 299;
  const std::vector<float> after = model.Run({prompt}, {})[0].logits;
  const size_t vocab = static_cast<size_t>(model.vocab());
  for (size_t t = 0; t < prompt.size(); ++t) {
    const bool same = SameBits(std::span(before).subspan(t * vocab, vocab),
                               std::span(after).subspan(t * vocab, vocab));
    EXPECT_EQ(same, t < kChanged || t >= kChanged + kWindow) << "position " << t;
  }
}

TEST(Architectures, TakeLongRotaryFactorsWhereTheContextIsLongerThanTheOriginal) {
  TempFolder folder;
  // Of a Phi-3 with these factors for all pairs; no factors at all where they are 0.
  auto logits = [&](uint32_t original, float short_factor, float long_factor) {
    TinyModel model(OptionsFor("phi3"));
    if (short_factor != 0) {
      model.key("rope.scaling.original_context_length") = original;
      model.key("rope.scaling.attn_factor") = 1.f;
      model.tensors.push_back({"rope_factors_short.weight", {8}, std::vector(8, short_factor)});
      model.tensors.push_back({"rope_factors_long.weight", {8}, std::vector(8, long_factor)});
    }
    model.Write(folder / "m.gguf");
    return ModelRun(folder / "m.gguf").Run({Prompt(20)}, {})[0].logits;
  };
  const std::vector<float> plain = logits(0, 0, 0);
  EXPECT_TRUE(SameBits(logits(512, 1, 7), plain));
  EXPECT_TRUE(SameBits(logits(64, 7, 1), plain));
  EXPECT_GT(RelativeDifference(logits(512, 7, 1), plain), 1e-2);
  EXPECT_GT(RelativeDifference(logits(64, 1, 7), plain), 1e-2);
}

// A projection that leads to a norm may have any scale: the norm takes it out again.
TEST(Architectures, StayAccurateWhereActivationsPassHalfPrecision) {
  TempFolder folder;
  for (float scale : {0x1p17f, 0x1p100f}) {
    TinyModel model(WindowedOptions());
    // Beside an epsilon that matters, a larger branch is another one.
    model.key("attention.layer_norm_rms_epsilon") = 1e-14f;
    model.Write(folder / "plain.gguf");
    for (const char* name : {"blk.0.ffn_up.weight", "blk.1.ffn_up.weight"}) {
      for (float& value : model.tensor(name).values) value *= scale;
    }
    model.Write(folder / "scaled.gguf");
    for (const char* format : {"F32", "Q8_0", "Q4_0"}) {
      std::vector<RunResult> results;
      for (const char* name : {"plain", "scaled"}) {
        const std::string path = folder / (std::string(name) + "-encoded.gguf");
        WriteInFormat(GgufFile::Open(folder / (std::string(name) + ".gguf")),
                      *FindFormat(std::string_view(format)), path, "ffn_up");
        ModelRun run(path);
        for (Isa isa : AvailableIsas()) results.push_back(run.Run({Prompt(40)}, {.isa = isa})[0]);
      }
      for (const RunResult& result : results) {
        EXPECT_LT(RelativeDifference(result.logits, results[0].logits), 1e-3)
            << format << ", activations times " << scale;
        EXPECT_EQ(result.fault, "");
      }
    }
  }
}

TEST(TinyModel, HasATokenizerOfBytesAndPairs) {
  TempFolder folder;
  TinyModel(TinyOptions{}).Write(folder / "m.gguf");
  const Tokenizer tokenizer = Tokenizer::FromGguf(GgufFile::Open(folder / "m.gguf"));
  EXPECT_EQ(tokenizer.size(), 300);
  const std::string text = "ab, a\xC3\xA9\n\x01!";
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  EXPECT_EQ(tokenizer.Decode(ids), text);
  EXPECT_EQ(tokenizer.TextOf(ids[0]), "ab");
}

}  // namespace
}  // namespace lockstep::test
