#include "convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "convert/testing/test_checkpoint.h"
#include "formats/format.h"

namespace lockstep {
namespace {

using test::ContentOf;
using test::MessageOf;
using test::TempFolder;
using test::TestCheckpoint;

// The plain checkpoint's file, to which variants are compared.
std::string PlainContent() {
  static const std::string content = [] {
    TempFolder folder;
    return ContentOf(TestCheckpoint().Convert(folder));
  }();
  return content;
}

TEST(Convert, WritesKeysAndTensorsAsLlamaCppNamesThem) {
  TempFolder folder;
  const GgufFile file = GgufFile::Open(TestCheckpoint().Convert(folder));
  const GgufMetadata& keys = file.metadata();
  EXPECT_EQ(keys.Required<std::string>("general.architecture"), "llama");
  EXPECT_EQ(keys.Required<uint32_t>("general.file_type"), 0u);
  EXPECT_EQ(keys.Required<uint32_t>("llama.block_count"), 2u);
  EXPECT_EQ(keys.Required<uint32_t>("llama.attention.head_count_kv"), 2u);
  EXPECT_EQ(keys.Required<float>("llama.rope.freq_base"), 5000.0f);
  EXPECT_EQ(keys.Required<std::string>("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(keys.Required<std::string>("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(keys.RequiredArray<std::string>("tokenizer.ggml.tokens"),
            (std::vector<std::string>{"<s>", "</s>", "a", "b", "c", "ab", "[PAD6]", "[PAD7]"}));
  EXPECT_EQ(keys.RequiredArray<int32_t>("tokenizer.ggml.token_type"),
            (std::vector<int32_t>{3, 3, 1, 1, 1, 1, 5, 5}));
  EXPECT_EQ(file.tensor_count(), 3 + 2 * 9u);
  EXPECT_EQ(file.RequireTensor("blk.1.ffn_down.weight").dims[0], 96u);
}

TEST(Convert, PutsHalvesOfHeadsAsPairs) {
  TempFolder folder;
  const GgufFile file = GgufFile::Open(TestCheckpoint().Convert(folder));
  const Safetensors weights = Safetensors::Open(folder / "model.safetensors");
  std::vector<float> source(64 * 64);
  std::memcpy(source.data(), weights.Require("model.layers.0.self_attn.q_proj.weight").data.data(),
              source.size() * 4);
  const std::vector<float> found = test::FloatsOf(file, "blk.0.attn_q.weight");
  for (size_t row = 0; row < 64; ++row) {
    const size_t head = row / 16, pair = row % 16 / 2, half = row % 2;
    const size_t from = head * 16 + half * 8 + pair;
    EXPECT_EQ(std::memcmp(&found[row * 64], &source[from * 64], 64 * 4), 0) << row;
  }
}

TEST(Convert, StoresMatricesByTypeAndVectorsInF32) {
  for (const auto& [type, format, number] : {std::tuple("f16", "F16", 1u),
                                             {"bf16", "BF16", 32u},
                                             {"q8_0", "Q8_0", 7u},
                                             {"auto", "F32", 0u}}) {
    TempFolder folder;
    const GgufFile file = GgufFile::Open(TestCheckpoint().Convert(folder, type));
    EXPECT_EQ(file.RequireTensor("blk.0.attn_q.weight").type->name, format);
    EXPECT_EQ(file.RequireTensor("blk.0.attn_norm.weight").type->name, "F32");
    EXPECT_EQ(file.metadata().Required<uint32_t>("general.file_type"), number);
  }
}

TEST(Convert, ReadsOlderSpellingsToTheSameFile) {
  TestCheckpoint checkpoint;
  checkpoint.config.erase("rope_parameters");
  checkpoint.config["rope_theta"] = 5000.0;
  checkpoint.config["rope_scaling"] = nullptr;
  TempFolder folder;
  EXPECT_EQ(ContentOf(checkpoint.Convert(folder)), PlainContent());
}

TEST(Convert, FindsTheTextModelInsideAMultimodalRelease) {
  TestCheckpoint checkpoint;
  boost::json::object outer = {{"architectures", checkpoint.config["architectures"]},
                               {"model_type", "llava"}};
  checkpoint.config.erase("architectures");
  outer["text_config"] = checkpoint.config;
  checkpoint.config = outer;
  std::map<std::string, test::TestTensor> renamed;
  for (auto& [name, tensor] : checkpoint.tensors) renamed["language_model." + name] = tensor;
  checkpoint.tensors = renamed;
  checkpoint.Add("vision_tower.patch.weight", {4, 4});
  TempFolder folder;
  EXPECT_EQ(ContentOf(checkpoint.Convert(folder)), PlainContent());
}

std::string ShardOf(const std::string& name) {
  return name.find("layers.1.") != name.npos ? "model-00002-of-00002.safetensors"
                                             : "model-00001-of-00002.safetensors";
}

// Writes the checkpoint in two files and an index, which names `extra` too.
void PutSharded(const TestCheckpoint& checkpoint, const TempFolder& folder,
                const boost::json::object& extra) {
  checkpoint.PutFiles(folder);
  boost::json::object map = extra;
  for (const auto& [name, tensor] : checkpoint.tensors) map[name] = ShardOf(name);
  for (const char* shard :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    checkpoint.PutWeights(folder / shard,
                          [&](const std::string& name) { return ShardOf(name) == shard; });
  }
  folder.Put("model.safetensors.index.json",
             boost::json::serialize(boost::json::object{{"weight_map", map}}));
}

TEST(Convert, ReadsManyFilesToTheSameFile) {
  TempFolder folder;
  PutSharded(TestCheckpoint(), folder, {});
  EXPECT_EQ(ContentOf(TestCheckpoint::ConvertFolder(folder)), PlainContent());
}

TEST(Convert, LivesWithAnAbsentFileOfWhichNothingIsNeeded) {
  TempFolder folder;
  PutSharded(TestCheckpoint(), folder, {{"draft.weight", "model-draft.safetensors"}});
  EXPECT_EQ(ContentOf(TestCheckpoint::ConvertFolder(folder)), PlainContent());
}

TEST(Convert, NamesTheAbsentFileOfATensorThatIsNeeded) {
  TempFolder folder;
  PutSharded(TestCheckpoint(), folder, {});
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  EXPECT_NE(MessageOf([&] { TestCheckpoint::ConvertFolder(folder); })
                .find("model.layers.1.input_layernorm.weight: expected this tensor in "
                      "model-00002-of-00002.safetensors, which is missing"),
            std::string::npos);
}

struct Damage {
  const char* what;
  void (*change)(TestCheckpoint& checkpoint);
  const char* refusal;  // what the message holds
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.what; }

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRefusedInOneLineThatNamesIt) {
  TestCheckpoint checkpoint;
  GetParam().change(checkpoint);
  const std::string refusal = checkpoint.Refusal();
  EXPECT_NE(refusal.find(GetParam().refusal), refusal.npos) << refusal;
  EXPECT_EQ(refusal.find('\n'), refusal.npos);
}

const Damage kDamages[] = {
    {"KeyMissing",
     [](TestCheckpoint& c) {
       c.config.erase("intermediate_size");
       c.config.erase("hidden_size");
     },
     "config.json: hidden_size: expected a value, but the key is missing"},
    {"KeyOfAnotherType", [](TestCheckpoint& c) { c.config["num_attention_heads"] = "four"; },
     "config.json: num_attention_heads: expected an integer from 0 to"},
    {"CountNegative", [](TestCheckpoint& c) { c.config["num_hidden_layers"] = -1; },
     "num_hidden_layers: expected an integer"},
    {"CountHuge", [](TestCheckpoint& c) { c.config["num_hidden_layers"] = 2000000000; },
     "num_hidden_layers: expected 1 to 21"},
    {"NoHeads", [](TestCheckpoint& c) { c.config["num_attention_heads"] = 0; },
     "num_attention_heads: expected a divisor"},
    {"HeadsThatDoNotFit", [](TestCheckpoint& c) { c.config["num_attention_heads"] = 64; },
     "self_attn.q_proj.weight: expected rows of 64 heads"},
    {"ArchitectureUnknown",
     [](TestCheckpoint& c) { c.config["architectures"] = {"NewForCausalLM"}; },
     "architectures: expected one of Cohere2"},
    {"ArchitectureAbsent",
     [](TestCheckpoint& c) {
       c.config.erase("architectures");
       c.config.erase("model_type");
     },
     "architectures: expected one of"},
    {"TensorMissing",
     [](TestCheckpoint& c) { c.tensors.erase("model.layers.1.mlp.up_proj.weight"); },
     "model.layers.1.mlp.up_proj.weight: tensor is missing"},
    {"HeadMissing", [](TestCheckpoint& c) { c.tensors.erase("lm_head.weight"); },
     "lm_head.weight: tensor is missing"},
    {"TensorUnused",
     [](TestCheckpoint& c) {
       c.Add("model.layers.0.mlp.extra.weight", {2, 2});
     },
     "expected only tensors of the architecture, found model.layers.0.mlp.extra.weight"},
    {"LayersTooMany", [](TestCheckpoint& c) { c.config["num_hidden_layers"] = 1; },
     "found model.layers.1.input_layernorm.weight"},
    {"TensorOfIntegers",
     [](TestCheckpoint& c) {
       c.tensors["model.norm.weight"] = {"I32", {64}, std::string(256, '\1')};
     },
     "model.norm.weight: expected numbers of type"},
    {"TensorOfNoSize",
     [](TestCheckpoint& c) {
       c.tensors["model.norm.weight"] = {"F32", {0}, ""};
     },
     "output_norm.weight"},
    {"TensorOfFiveDimensions",
     [](TestCheckpoint& c) {
       c.Add("model.layers.0.self_attn.v_proj.weight", {2, 2, 2, 2, 2});
     },
     "blk.0.attn_v.weight"},
    {"ScalingUnknown",
     [](TestCheckpoint& c) {
       c.config["rope_parameters"] = {{"rope_type", "spiral"}};
     },
     "rope_parameters.rope_type: expected default"},
    {"ScalingIncomplete",
     [](TestCheckpoint& c) {
       c.config["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 1e4}};
     },
     "rope_parameters.factor: expected a value, but the key is missing"},
    {"RotaryShareTooLarge", [](TestCheckpoint& c) { c.config["partial_rotary_factor"] = 1.5; },
     "partial_rotary_factor: expected 0 to 1"},
    {"VocabularyTooLarge",
     [](TestCheckpoint& c) {
       c.Add("model.embed_tokens.weight", {4, 64});
     },
     "tokenizer.json: expected at most 4 ids"},
    {"TokenizerDamaged", [](TestCheckpoint& c) { c.tokenizer.resize(40); },
     "tokenizer.json: expected JSON"},
};

INSTANTIATE_TEST_SUITE_P(Checkpoints, Damaged, testing::ValuesIn(kDamages),
                         [](const auto& info) { return info.param.what; });

TEST(Convert, AdvisesWhereWeightsAreNoSafetensors) {
  TempFolder folder;
  TestCheckpoint().PutFiles(folder);
  folder.Put("pytorch_model.bin", "PK");
  EXPECT_NE(MessageOf([&] {
              TestCheckpoint::ConvertFolder(folder);
            }).find("expected safetensors, found pytorch_model.bin: save the model as safetensors"),
            std::string::npos);
}

TEST(Convert, RefusesWeightsCutShortAnywhereInTheHeader) {
  TempFolder folder;
  TestCheckpoint().Put(folder);
  const std::string whole = ReadFile(folder / "model.safetensors", 1 << 20);
  for (size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, whole.size() - 1}) {
    folder.Put("model.safetensors", whole.substr(0, size));
    EXPECT_NE(MessageOf([&] { TestCheckpoint::ConvertFolder(folder); }), "") << size;
    EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf")) << size;
  }
}

TEST(Convert, LeavesTheHeadOutWhereItIsTheEmbedding) {
  TestCheckpoint checkpoint;
  checkpoint.config["tie_word_embeddings"] = true;
  TempFolder folder;
  const GgufFile file = GgufFile::Open(checkpoint.Convert(folder));
  EXPECT_FALSE(file.FindTensor("output.weight").has_value());
}

TEST(Convert, StatesHowTheReleaseSamples) {
  TempFolder folder;
  TestCheckpoint().Put(folder);
  folder.Put("generation_config.json", R"({"temperature": 0.7, "top_k": 20, "top_p": 0.8})");
  const GgufFile file = GgufFile::Open(TestCheckpoint::ConvertFolder(folder));
  EXPECT_EQ(file.metadata().Required<float>("general.sampling.temp"), 0.7f);
  EXPECT_EQ(file.metadata().Required<uint32_t>("general.sampling.top_k"), 20u);
}

TEST(Convert, WritesNothingOnADryRun) {
  TempFolder folder;
  TestCheckpoint().Put(folder);
  const ConvertResult result = ConvertCheckpoint(
      {.folder = folder / "", .output = folder / "out.gguf", .type = "f32", .dry_run = true});
  EXPECT_EQ(result.tensors, 21u);
  EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
}

// FP8 with a scale for each 128 by 128 block, as DeepSeek-V3 ships.
TEST(Convert, MultipliesBlocksOfFp8ByTheirScales) {
  TestCheckpoint checkpoint;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  std::string codes(96 * 64, '\0');
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>(i % 127);
  checkpoint.tensors[name] = {"F8_E4M3", {96, 64}, codes};
  checkpoint.tensors[name + "_scale_inv"] = {
      "F32", {3, 2}, test::BytesOf<float>({1, 2, 4, 8, 16, 32})};
  checkpoint.config["quantization_config"] = {{"quant_method", "fp8"},
                                              {"weight_block_size", {32, 32}}};
  TempFolder folder;
  const GgufFile file = GgufFile::Open(checkpoint.Convert(folder));
  const std::vector<float> found = test::FloatsOf(file, "blk.0.ffn_up.weight");
  for (size_t i = 0; i < found.size(); ++i) {
    const int code = static_cast<int>(i % 127), exponent = code >> 3, mantissa = code & 7;
    const float number = exponent == 0
                             ? std::ldexp(static_cast<float>(mantissa), -9)
                             : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
    const size_t block = i / 64 / 32 * 2 + i % 64 / 32;
    ASSERT_EQ(found[i], std::ldexp(number, static_cast<int>(block))) << i;
  }
}

TEST(Convert, RefusesScalesThatDoNotFitTheirBlocks) {
  TestCheckpoint checkpoint;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  checkpoint.tensors[name] = {"F8_E4M3", {96, 64}, std::string(96 * 64, '\1')};
  checkpoint.tensors[name + "_scale_inv"] = {"F32", {5, 2}, std::string(40, '\0')};
  EXPECT_NE(checkpoint.Refusal().find("up_proj.weight_scale_inv: expected scales of blocks of"),
            std::string::npos);
}

// MXFP4 blocks as gpt-oss ships them stay MXFP4 where the type is the checkpoint's own.
TEST(Convert, KeepsMxFp4ExactlyAndDecodesItToF32) {
  TestCheckpoint checkpoint;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  checkpoint.tensors.erase(name);
  std::string codes(96 * 2 * 16, '\0'), scales(96 * 2, '\0');
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>(i * 37 % 256);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<char>(100 + i % 50);
  checkpoint.tensors[name + "_blocks"] = {"U8", {96, 2, 16}, codes};
  checkpoint.tensors[name + "_scales"] = {"U8", {96, 2}, scales};
  TempFolder folder;
  const std::vector<float> found =
      test::FloatsOf(GgufFile::Open(checkpoint.Convert(folder)), "blk.0.ffn_up.weight");
  static constexpr float kNumbers[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 0; i < found.size(); ++i) {
    const int byte = static_cast<uint8_t>(codes[i / 2]), code = i % 2 == 0 ? byte & 15 : byte >> 4;
    const float number = std::ldexp(kNumbers[code & 7], 100 + static_cast<int>(i / 32 % 50) - 127);
    ASSERT_EQ(found[i], code & 8 ? -number : number) << i;
  }
  TempFolder own;
  const GgufFile kept = GgufFile::Open(checkpoint.Convert(own, "auto"));
  const GgufTensor tensor = kept.RequireTensor("blk.0.ffn_up.weight");
  ASSERT_EQ(tensor.type->name, "MXFP4");
  std::vector<float> decoded(found.size());
  FindFormat(std::string_view("MXFP4"))
      ->decode(tensor.data.data(), static_cast<int64_t>(found.size() / 32), decoded.data());
  EXPECT_EQ(decoded, found);
}

}  // namespace
}  // namespace lockstep
