// The quantiser: what it writes, and what it refuses.
#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "convert/testing/quantize_model.h"
#include "gguf/gguf_file.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::MessageOf;
using test::TempFolder;
using testing::LayeredModel;
using testing::TestModel;
using testing::TestTensor;

// One model of every kind of tensor, in and out of blocks of 256.
TestModel PlainModel() {
  TestModel model;
  model.tensors = {{"blk.0.ffn_down.weight", {512, 6}},
                   {"token_embd.weight", {256, 40}},
                   {"output.weight", {256, 40}},
                   {"blk.0.ffn_up.weight", {96, 8}},
                   {"blk.1.ffn_up.weight", {80, 4}},
                   {"blk.0.ffn_up_exps.weight", {256, 4, 3}},
                   {"blk.0.attn_norm.weight", {256}},
                   {"blk.0.ffn_gate_inp.weight", {256, 4}},
                   {"blk.0.attn_q.weight", {256, 4}, "BF16"},
                   {"blk.0.attn_k.weight", {256, 4}, "F16"}};
  return model;
}

class Quantize : public ::testing::Test {
 protected:
  QuantizeOptions Options(std::string_view mix) {
    QuantizeOptions options;
    options.input = folder_ / "in.gguf";
    options.output = folder_ / "out.gguf";
    options.mix.mix = FindMix(mix);
    options.threads = 2;
    return options;
  }
  std::string Refusal(const QuantizeOptions& options) {
    std::string message = MessageOf([&] { QuantizeFile(options); });
    EXPECT_FALSE(std::filesystem::exists(options.output)) << message;
    const std::string path = folder_ / "";
    for (size_t at; (at = message.find(path)) != message.npos;) message.erase(at, path.size());
    return message;
  }
  std::string Output() { return ReadFile(folder_ / "out.gguf", 1 << 26); }

  TempFolder folder_;
};

TEST_F(Quantize, WritesTheFormatsOfAMixAndTheMetadataOfTheModel) {
  PlainModel().Write(folder_ / "in.gguf");
  const QuantizeResult result = QuantizeFile(Options("Q4_K_S"));
  const GgufFile file = GgufFile::Open(folder_ / "out.gguf");
  const std::map<std::string, std::string> expected = {
      {"blk.0.ffn_down.weight", "Q5_K"}, {"token_embd.weight", "Q4_K"},
      {"output.weight", "Q6_K"},         {"blk.0.ffn_up.weight", "Q5_0"},
      {"blk.1.ffn_up.weight", "F16"},    {"blk.0.ffn_up_exps.weight", "Q4_K"},
      {"blk.0.attn_norm.weight", "F32"}, {"blk.0.ffn_gate_inp.weight", "F32"},
      {"blk.0.attn_q.weight", "Q4_K"},   {"blk.0.attn_k.weight", "Q4_K"}};
  ASSERT_EQ(result.tensors.size(), expected.size());
  for (const QuantizedTensor& tensor : result.tensors) {
    EXPECT_EQ(tensor.to->name, expected.at(tensor.name)) << tensor.name;
    EXPECT_EQ(file.RequireTensor(tensor.name).type->name, expected.at(tensor.name));
    EXPECT_EQ(tensor.fell_back(), tensor.name.ends_with("ffn_up.weight")) << tensor.name;
  }
  EXPECT_EQ(file.metadata().Required<std::string>("general.name"), "a test");
  EXPECT_EQ(file.metadata().Required<uint32_t>("general.file_type"), 14u);
  EXPECT_EQ(file.metadata().Required<uint32_t>("general.quantization_version"), 2u);
  EXPECT_EQ(file.metadata().Required<uint32_t>("llama.block_count"), 16u);
}

// The errors that are reported are those of the file, decoded again.
TEST_F(Quantize, ReportsTheErrorsOfWhatWasWritten) {
  PlainModel().Write(folder_ / "in.gguf");
  const QuantizeResult result = QuantizeFile(Options("Q4_K_M"));
  const GgufFile before = GgufFile::Open(folder_ / "in.gguf");
  const GgufFile after = GgufFile::Open(folder_ / "out.gguf");
  for (const QuantizedTensor& tensor : result.tensors) {
    const auto decode = [&](const GgufFile& file) {
      const GgufTensor view = file.RequireTensor(tensor.name);
      const Format& format = *FindFormat(view.type->id);
      std::vector<float> x(view.elements());
      format.decode(view.data.data(), static_cast<int64_t>(x.size()) / format.block, x.data());
      return x;
    };
    const std::vector<float> x = decode(before), y = decode(after);
    double squares = 0, errors = 0, largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double off = double{x[i]} - y[i];
      squares += double{x[i]} * x[i];
      errors += off * off;
      largest = std::max(largest, std::abs(off));
    }
    if (tensor.from == tensor.to) {
      EXPECT_EQ(errors, 0) << tensor.name;
      continue;
    }
    // Sums of pieces of 2^16 numbers, added in another order.
    EXPECT_NEAR(tensor.relative_error(), std::sqrt(errors / squares), 1e-12) << tensor.name;
    EXPECT_EQ(tensor.largest_error, largest) << tensor.name;
  }
}

TEST_F(Quantize, GivesTheSameBytesForAnyNumberOfThreads) {
  TestModel model = PlainModel();
  // Several pieces, of whole rows and of a row that is longer than a piece.
  model.tensors.push_back({"blk.0.attn_v.weight", {768, 300}});
  model.tensors.push_back({"blk.1.attn_v.weight", {70400, 2}});
  model.Write(folder_ / "in.gguf");
  std::string expected;
  for (int threads : {1, 2, 5}) {
    QuantizeOptions options = Options("Q3_K_M");
    options.threads = threads;
    QuantizeFile(options);
    if (threads == 1) expected = Output();
    EXPECT_EQ(Output(), expected) << threads;
  }
}

TEST_F(Quantize, ObeysOverridesAndOptions) {
  PlainModel().Write(folder_ / "in.gguf");
  const auto types = [&](const QuantizeOptions& options) {
    QuantizeFile(options);
    const GgufFile file = GgufFile::Open(options.output);
    std::string text;
    for (const char* name :
         {"blk.0.ffn_down.weight", "token_embd.weight", "output.weight", "blk.0.attn_q.weight"}) {
      text += fmt::format("{} ", file.RequireTensor(name).type->name);
    }
    return text;
  };
  QuantizeOptions options = Options("Q4_K_M");
  options.mix.overrides = {{"ffn_d.wn", "q8_0"}, {"ffn_down", "q2_k"}, {"attn_[qk]\\.", "IQ4_XS"}};
  EXPECT_EQ(types(options), "Q8_0 Q4_K Q6_K IQ4_XS ");
  options = Options("Q4_K_M");
  options.mix.output_format = "q8_0";
  options.mix.embedding_format = "q5_1";
  EXPECT_EQ(types(options), "Q6_K Q5_1 Q8_0 Q4_K ");
  options = Options("Q4_K_M");
  options.mix.pure = true;
  EXPECT_EQ(types(options), "Q4_K Q4_K Q4_K Q4_K ");
  options.mix.leave_output = true;
  EXPECT_EQ(types(options), "Q4_K Q4_K F32 Q4_K ");
  EXPECT_EQ(types(Options("F16")), "F16 F16 F16 F16 ");
  EXPECT_EQ(types(Options("COPY")), "F32 F32 F32 BF16 ");
}

TEST_F(Quantize, UsesTheImportanceOfEachExpert) {
  TestModel model;
  model.tensors = {{"blk.0.ffn_up_exps.weight", {256, 4, 2}}, {"blk.0.ffn_up.weight", {256, 4}}};
  model.Write(folder_ / "in.gguf");
  const auto encode = [&](const Imatrix* matrix) {
    QuantizeOptions options = Options("IQ4_XS");
    options.imatrix = matrix;
    options.imatrix_name = "m.gguf";
    QuantizeFile(options);
    const GgufFile file = GgufFile::Open(options.output);
    std::vector<std::string> experts;
    const GgufTensor tensor = file.RequireTensor("blk.0.ffn_up_exps.weight");
    const size_t half = tensor.data.size() / 2;
    for (size_t e = 0; e < 2; ++e) {
      experts.emplace_back(reinterpret_cast<const char*>(tensor.data.data()) + e * half, half);
    }
    return experts;
  };
  Imatrix matrix;
  ImatrixEntry& entry = matrix.Add("blk.0.ffn_up_exps.weight", 2, 256);
  entry.sums.assign(512, 3.0);
  entry.counts = {1, 1};
  const std::vector<std::string> flat = encode(nullptr);
  EXPECT_EQ(encode(&matrix), flat);  // columns that all count alike
  for (size_t i = 256; i < 512; i += 2) entry.sums[i] = 300;
  const std::vector<std::string> second = encode(&matrix);
  EXPECT_EQ(second[0], flat[0]);
  EXPECT_NE(second[1], flat[1]);
  const GgufFile file = GgufFile::Open(folder_ / "out.gguf");
  EXPECT_EQ(file.metadata().Required<std::string>("quantize.imatrix.file"), "m.gguf");
  EXPECT_EQ(file.metadata().Required<uint32_t>("quantize.imatrix.entries_count"), 1u);
}

TEST_F(Quantize, KeepsTheSplitOfAModel) {
  const TestModel model = PlainModel();
  for (uint32_t i = 0; i < 3; ++i)
    model.Write(folder_ / fmt::format("in-{:05}-of-00003.gguf", i + 1), i, 3);
  QuantizeOptions options = Options("Q4_0");
  options.input = folder_ / "in-00001-of-00003.gguf";
  options.keep_split = true;
  QuantizeFile(options);
  EXPECT_FALSE(std::filesystem::exists(options.output));
  const GgufFile parts = GgufFile::Open(folder_ / "out-00001-of-00003.gguf");
  EXPECT_EQ(parts.shard_count(), 3u);
  options.keep_split = false;
  QuantizeFile(options);
  const GgufFile whole = GgufFile::Open(folder_ / "out.gguf");
  EXPECT_FALSE(whole.metadata().Has("split.count"));
  ASSERT_EQ(parts.tensor_count(), whole.tensor_count());
  for (GgufTensor tensor : whole.tensors()) {
    EXPECT_TRUE(std::ranges::equal(tensor.data, parts.RequireTensor(tensor.name).data))
        << tensor.name;
  }
}

TEST_F(Quantize, WritesNothingOnADryRun) {
  PlainModel().Write(folder_ / "in.gguf");
  QuantizeOptions options = Options("IQ2_XS");
  options.dry_run = true;
  const QuantizeResult dry = QuantizeFile(options);
  EXPECT_FALSE(std::filesystem::exists(options.output));
  options = Options("Q5_K_M");
  options.dry_run = true;
  const uint64_t bytes = QuantizeFile(options).bytes_after;
  options.dry_run = false;
  EXPECT_EQ(QuantizeFile(options).bytes_after, bytes);
  EXPECT_GT(Output().size(), bytes);
}

TEST_F(Quantize, RefusesInOneLine) {
  TestModel model = PlainModel();
  model.Write(folder_ / "in.gguf");
  EXPECT_EQ(Refusal(Options("IQ2_XS")),
            "in.gguf: blk.0.ffn_up_exps.weight: IQ2_XS is of use with an importance matrix only; "
            "found none "
            "(--imatrix FILE)");
  Imatrix matrix;
  matrix.Add("blk.0.ffn_down.weight", 1, 100);
  QuantizeOptions options = Options("Q4_0");
  options.imatrix = &matrix;
  EXPECT_EQ(
      Refusal(options),
      "in.gguf: blk.0.ffn_down.weight: expected an importance matrix of 512 columns, found 100");
  options = Options("Q4_0");
  options.mix.overrides = {{"(", "q8_0"}};
  EXPECT_EQ(Refusal(options), "--tensor-type: expected a regular expression, found '('");
  options.mix.overrides = {{"a", "q9_9"}};
  EXPECT_EQ(Refusal(options), "--tensor-type: expected a format of weights, found 'q9_9'");
  options = Options("Q4_K_M");
  options.mix.strict = true;
  EXPECT_EQ(Refusal(options),
            "blk.0.ffn_up.weight: expected rows of a multiple of 256 weights for Q4_K, found 96, "
            "which fit F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL BF16 MXFP4");
  options = Options("Q4_0");
  options.output = folder_ / "no such folder/out.gguf";
  EXPECT_NE(Refusal(options).find("no such folder/out.gguf"), std::string::npos);
  model.tensors[0].type = "Q4_1";
  model.Write(folder_ / "in.gguf");
  EXPECT_EQ(Refusal(Options("Q6_K")),
            "in.gguf: blk.0.ffn_down.weight: expected F32, F16 or BF16, found Q4_1; "
            "--allow-requantize takes it");
  options = Options("Q6_K");
  options.allow_requantize = true;
  QuantizeFile(options);
  EXPECT_EQ(GgufFile::Open(options.output).RequireTensor("blk.0.ffn_down.weight").type->name,
            "Q6_K");
}

TEST_F(Quantize, RefusesNumbersThatAreNotFiniteByTheirPlace) {
  const float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity()};
  for (float bad : kBad) {
    for (const char* mix : {"Q4_0", "F32"}) {
      TestModel model = PlainModel();
      model.damage = {{512 * 5 + 7, bad}};
      model.Write(folder_ / "in.gguf");
      EXPECT_EQ(Refusal(Options(mix)), fmt::format("in.gguf: blk.0.ffn_down.weight: expected "
                                                   "finite numbers, found {} at row 5, column 7",
                                                   bad));
    }
  }
}

// B079: a format that the caller names is not quietly replaced by another.
TEST_F(Quantize, B079RefusesANamedFormatThatRowsDoNotFit) {
  TestModel model = PlainModel();
  model.tensors.push_back({"blk.0.attn_gate.weight", {72, 64}});
  model.Write(folder_ / "in.gguf");
  QuantizeOptions options = Options("Q8_0");
  options.mix.overrides = {{"attn_gate", "q4_k"}};
  const std::string text = Refusal(options);
  EXPECT_TRUE(
      text.starts_with("blk.0.attn_gate.weight: expected rows of a multiple of 256 weights "
                       "for Q4_K, found 72, which fit F32 F16 "))
      << text;
  QuantizeFile(Options("Q8_0"));
}

// B080: layers beyond the main ones, as of heads that predict further tokens, are layers like others.
TEST_F(Quantize, B080WritesTheLayersBehindTheMainOnes) {
  TestModel model = LayeredModel(false, 0);
  model.keys["nextn_predict_layers"] = 1;
  for (const char* name : {"attn_q", "attn_v", "ffn_down", "nextn.eh_proj"})
    model.tensors.push_back({fmt::format("blk.16.{}.weight", name), {512, 2}});
  for (uint32_t layers : {16, 17}) {
    model.keys["block_count"] = layers;
    model.Write(folder_ / "in.gguf");
    QuantizeFile(Options("Q4_K_M"));
    const GgufFile file = GgufFile::Open(folder_ / "out.gguf");
    for (const TestTensor& tensor : model.tensors) file.RequireTensor(tensor.name);
    for (const char* name : {"attn_q", "attn_v", "ffn_down", "nextn.eh_proj"}) {
      const auto& type = *file.RequireTensor(fmt::format("blk.16.{}.weight", name)).type;
      EXPECT_TRUE(type.name == "Q4_K" || type.name == "Q6_K") << name << " " << type.name;
    }
  }
}

// B082: what falls back can be told in numbers.
TEST_F(Quantize, B082SaysWhatFellBackAndWhatItWasMeantToTake) {
  TestModel model;
  for (uint64_t width : {2688, 1856, 3712})
    model.tensors.push_back({fmt::format("blk.0.ffn_{}.weight", width), {width, 4}});
  model.Write(folder_ / "in.gguf");
  const QuantizeResult result = QuantizeFile(Options("Q4_K_S"));
  ASSERT_EQ(result.tensors.size(), 3u);
  for (const QuantizedTensor& tensor : result.tensors) {
    EXPECT_TRUE(tensor.fell_back()) << tensor.name;
    EXPECT_EQ(tensor.meant->name, "Q4_K");
    EXPECT_EQ(tensor.to->name, "Q5_0");
  }
}

// B077: an expert that no token met.
TEST_F(Quantize, B077FitsExpertsWithoutDataAndNamesThem) {
  TestModel model;
  model.tensors.push_back({"blk.0.ffn_up_exps.weight", {256, 8, 4}});
  model.Write(folder_ / "in.gguf");
  Imatrix matrix;
  const std::vector<float> x(256, 1.0f);
  ImatrixEntry& entry = matrix.Add("blk.0.ffn_up_exps.weight", 4, 256);
  for (size_t expert : {0, 1, 2}) {
    entry.counts[expert] = 1;
    for (size_t i = 0; i < 256; ++i)
      entry.sums[expert * 256 + i] = 1.0 + static_cast<double>(i % 7);
  }
  for (const char* mix : {"Q4_K_M", "IQ3_XXS", "IQ1_S", "Q4_0"}) {
    QuantizeOptions options = Options(mix);
    options.imatrix = &matrix;
    options.mix.has_imatrix = true;
    const QuantizeResult result = QuantizeFile(options);
    EXPECT_EQ(result.tensors[0].unseen_experts, (std::vector<int64_t>{3}));
    const GgufFile file = GgufFile::Open(folder_ / "out.gguf");
    const GgufTensor& tensor = file.RequireTensor("blk.0.ffn_up_exps.weight");
    const Format& format = *FindFormat(tensor.type->id);
    std::vector<float> decoded(tensor.elements());
    format.decode(tensor.data.data(), std::ssize(decoded) / format.block, decoded.data());
    for (float v : decoded) ASSERT_TRUE(std::isfinite(v)) << mix;
    // Sizes are near 0.05; an expert of zeros would be no expert.
    EXPECT_GT(*std::max_element(decoded.end() - 256 * 8, decoded.end()), 0.04f) << mix;
  }
}

TEST_F(Quantize, RefusesToOverwriteItsInput) {
  PlainModel().Write(folder_ / "in.gguf");
  QuantizeOptions options = Options("Q4_0");
  options.output = options.input;
  EXPECT_EQ(MessageOf([&] { QuantizeFile(options); }),
            options.input + ": expected another name for the output, found that of the input");
}

}  // namespace
}  // namespace lockstep
