// The quantiser: which formats it chooses, what it writes, and what it refuses.
#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "base/file.h"
#include "gguf/gguf_writer.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::MessageOf;
using test::TempFolder;

struct TestTensor {
  std::string name;
  std::vector<uint64_t> dims;
  std::string type = "F32";
};

struct TestModel {
  std::map<std::string, uint32_t> keys = {
      {"block_count", 16}, {"attention.head_count", 8}, {"attention.head_count_kv", 2}};
  std::vector<TestTensor> tensors;
  // Replaces one number of the first tensor.
  std::optional<std::pair<size_t, float>> damage;

  std::string Write(const std::string& path, uint32_t shard = 0, uint32_t shards = 1) const {
    GgufWriter writer(path);
    if (shard == 0) {
      writer.Add("general.architecture", "llama");
      writer.Add("general.file_type", uint32_t{0});
      writer.Add("general.name", "a test");
      for (const auto& [key, value] : keys) writer.Add("llama." + key, value);
    }
    if (shards > 1) {
      writer.Add("split.no", static_cast<uint16_t>(shard));
      writer.Add("split.count", static_cast<uint16_t>(shards));
      writer.Add("split.tensors.count", static_cast<int32_t>(tensors.size()));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i % shards == shard)
        writer.AddTensor(tensors[i].name, FindFormat(tensors[i].type)->id, tensors[i].dims);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i % shards == shard) writer.Write(Bytes(i));
    }
    writer.Finish();
    return path;
  }

  std::vector<std::byte> Bytes(size_t i) const {
    std::mt19937 random(static_cast<unsigned>(i));
    std::normal_distribution<float> normal(0, 0.05f);
    uint64_t count = 1;
    for (uint64_t dim : tensors[i].dims) count *= dim;
    std::vector<float> x(count);
    for (float& v : x) v = normal(random);
    if (damage && i == 0) x[damage->first] = damage->second;
    const Format& format = *FindFormat(tensors[i].type);
    std::vector<std::byte> bytes(static_cast<size_t>(format.RowBytes(static_cast<int64_t>(count))));
    format.encode(x.data(), static_cast<int64_t>(count) / format.block, bytes.data());
    return bytes;
  }
};

// A model with all that has a role, two rows a matrix.
TestModel LayeredModel(bool tied, uint32_t experts) {
  TestModel model;
  model.tensors.push_back({"token_embd.weight", {256, 2}});
  if (!tied) model.tensors.push_back({"output.weight", {256, 2}});
  if (experts != 0) model.keys["expert_count"] = experts;
  for (int i = 0; i < 16; ++i) {
    const auto add = [&](std::string_view name, std::vector<uint64_t> dims) {
      model.tensors.push_back({fmt::format("blk.{}.{}.weight", i, name), std::move(dims)});
    };
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) add(name, {256, 2});
    add("attn_norm", {256});
    if (experts != 0) add("ffn_gate_inp", {256, experts});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      experts != 0 ? add(fmt::format("{}_exps", name), {256, 2, experts}) : add(name, {256, 2});
    }
  }
  return model;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// "Q6_K*2,Q4_K*14" for one format a layer, "Q4_K" for all layers.
std::vector<std::string> Layers(const std::string& text) {
  std::vector<std::string> layers;
  for (const std::string& run : Split(text, ',')) {
    const size_t star = run.find('*');
    const int count = star == run.npos ? 16 : std::stoi(run.substr(star + 1));
    layers.insert(layers.end(), static_cast<size_t>(count), run.substr(0, star));
  }
  return layers;
}

TEST(QuantizeMix, ChoosesWhatLlamaCppChooses) {
  TempFolder folder;
  std::ifstream lines(LOCKSTEP_SOURCE_DIR "/src/convert/testdata/mixes.txt");
  const std::map<std::string, TestModel> models = {{"narrow", LayeredModel(false, 0)},
                                                   {"wide", LayeredModel(true, 0)},
                                                   {"eight", LayeredModel(false, 8)},
                                                   {"many", LayeredModel(false, 16)}};
  std::map<std::string, GgufFile> files;
  for (auto [name, model] : models) {
    model.keys["attention.head_count_kv"] = name == "narrow" || name == "many" ? 4 : 2;
    files.emplace(name, GgufFile::Open(model.Write(folder / name)));
  }
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> words = Split(line, ' ');
    const GgufFile& file = files.at(words[0]);
    MixOptions options;
    options.mix = FindMix(words[2]);
    ASSERT_NE(options.mix, nullptr) << words[2];
    options.has_imatrix = words[1] == "imatrix";
    const std::vector<GgufTensor> tensors(file.tensors().begin(), file.tensors().end());
    std::map<std::string, std::string> found;
    for (const PlannedTensor& row : PlanFormats(tensors, file.metadata(), options)) {
      found[std::string(row.tensor.name)] = row.to->name;
    }
    for (size_t i = 3; i < words.size(); ++i) {
      const std::string name = words[i].substr(0, words[i].find('='));
      const std::string types = words[i].substr(name.size() + 1);
      if (found.contains(name + ".weight")) {
        EXPECT_EQ(found[name + ".weight"], types) << line;
        continue;
      }
      const std::vector<std::string> layers = Layers(types);
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        EXPECT_EQ(found[fmt::format("blk.{}.{}.weight", layer, name)], layers[layer])
            << words[0] << " " << words[1] << " " << words[2] << " " << name << " " << layer;
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(QuantizeMix, IsFoundByNameAliasAndNumber) {
  EXPECT_EQ(FindMix("q4_k_m")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("Q4_K")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("15")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("0")->name, "F32");
  EXPECT_EQ(FindMix("copy")->id, MixId::kCopy);
  EXPECT_EQ(FindMix("Q4_K_X"), nullptr);
  EXPECT_EQ(MessageOf([] { RequireMix("x\n"); }).substr(0, 32), "type: expected one of F32, F16, ");
}

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
    EXPECT_EQ(tensor.fell_back, tensor.name.ends_with("ffn_up.weight")) << tensor.name;
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
            "blk.0.ffn_up.weight: expected rows of a multiple of 256 weights for Q4_K, found 96");
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

TEST_F(Quantize, RefusesToOverwriteItsInput) {
  PlainModel().Write(folder_ / "in.gguf");
  QuantizeOptions options = Options("Q4_0");
  options.output = options.input;
  EXPECT_EQ(MessageOf([&] { QuantizeFile(options); }),
            options.input + ": expected another name for the output, found that of the input");
}

}  // namespace
}  // namespace lockstep
