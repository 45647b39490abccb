// Files of random weights: every row of the table states a graph that its file can back.
#include "convert/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "convert/quantize_mix.h"
#include "exec/weights.h"
#include "gguf/temp_folder.h"
#include "models/models.h"

namespace lockstep {
namespace {

using test::MessageOf;
using test::TempFolder;

// "30b-a3b": 30, "135m": 0.135.
double SizeOf(std::string_view size) {
  const double number = std::stod(std::string(size));
  const size_t times = size.find('x');
  if (times != size.npos) return number * std::stod(std::string(size.substr(times + 1)));
  return size.substr(0, size.find('-')).ends_with('m') ? number / 1000 : number;
}

// Embeddings and rounding make names differ from counts: 8x7b shares its attention, 0.6b and 1b
// count as their makers do.
TEST(Synth, HasAboutAsManyWeightsAsItsNameSays) {
  TempFolder folder;
  for (const SynthModel& model : SynthModels()) {
    const SynthResult result = WriteSynth({.architecture = std::string(model.architecture),
                                           .size = std::string(model.size),
                                           .output = folder / "x.gguf",
                                           .dry_run = true});
    const double billions = static_cast<double>(result.weights) * 1e-9, named = SizeOf(model.size);
    EXPECT_GT(billions, 0.8 * named) << model.model;
    EXPECT_LT(billions, 1.3 * named) << model.model;
    EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
    EXPECT_TRUE(std::filesystem::is_empty(folder / "")) << model.model;
  }
}

TEST(Synth, WritesAFileWhoseWeightsTheGraphFinds) {
  TempFolder folder;
  const SynthOptions options{
      .architecture = "llama", .size = "135m", .type = "q4_k_m", .output = folder / "x.gguf"};
  const SynthResult result = WriteSynth(options);
  const GgufFile file = GgufFile::Open(options.output);
  const Graph graph = BuildGraph(ModelSource(file, {}));
  EXPECT_FALSE(FindWeights(graph, file).empty());
  EXPECT_EQ(file.tensor_count(), result.tensors);
  EXPECT_EQ(file.metadata().Required<uint32_t>("general.file_type"), 15u);
  // Rows of 576 are no whole blocks of Q4_K.
  EXPECT_EQ(file.RequireTensor("blk.0.attn_q.weight").type->name, "Q5_0");
  for (GgufTensor tensor : file.tensors()) {
    const Format& format = *FindFormat(tensor.type->id);
    std::vector<float> x(tensor.elements());
    format.decode(tensor.data.data(), static_cast<int64_t>(x.size()) / format.block, x.data());
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    const double size = std::sqrt(squares / static_cast<double>(x.size()));
    const double expected =
        tensor.dims_count == 1 ? 1 : 1 / std::sqrt(static_cast<double>(tensor.dims[0]));
    EXPECT_NEAR(size / expected, 1, 0.05) << tensor.name;
  }
}

TEST(Synth, GivesTheSameBytesForTheSameSeed) {
  TempFolder folder;
  SynthOptions options{.architecture = "llama", .size = "135m", .output = folder / "x.gguf"};
  const auto write = [&](uint64_t seed) {
    options.seed = seed;
    WriteSynth(options);
    return ReadFile(options.output, 1 << 30);
  };
  const std::string first = write(1);
  EXPECT_EQ(write(1), first);
  EXPECT_NE(write(2), first);
}

TEST(Synth, RefusesWhatItDoesNotKnowInOneLine) {
  TempFolder folder;
  const auto message = [&](std::string architecture, std::string size, std::string type) {
    return MessageOf([&] {
      WriteSynth({.architecture = std::move(architecture),
                  .size = std::move(size),
                  .type = std::move(type),
                  .output = folder / "x.gguf"});
    });
  };
  EXPECT_EQ(message("lama", "1b", "q4_0").substr(0, 44),
            "--arch: expected one of llama, qwen2, qwen3,");
  EXPECT_EQ(message("gpt-oss", "1b", "q4_0"),
            "--size: expected one of 20b, 120b for gpt-oss, found '1b'");
  EXPECT_EQ(message("llama", "1b", "q4_9").substr(0, 26), "type: expected one of F32,");
}

}  // namespace
}  // namespace lockstep
