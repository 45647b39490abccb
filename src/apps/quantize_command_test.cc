// quantize, imatrix and synth from their command lines.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <boost/json.hpp>
#include <filesystem>

#include "apps/program_run.h"
#include "gguf/gguf_file.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::TempFolder;
using test::TinyModel;
using test::TinyOptions;

class QuantizeCommands : public ::testing::Test {
 protected:
  QuantizeCommands() : model_(folder_ / "tiny.gguf") {
    TinyOptions tiny;
    tiny.width = 256;
    tiny.ff_width = 256;
    TinyModel(tiny).Write(model_);
    std::string text;
    for (int i = 0; i < 40; ++i) text += fmt::format("line {} of a text\n", i);
    folder_.Put("text", text);
  }

  // @name stands for a file of the folder.
  ProgramRun Run(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument.starts_with('@')) argument = folder_ / argument.substr(1);
    }
    return RunProgram({arguments.begin(), arguments.end()});
  }
  std::string TypeOf(std::string_view file, std::string_view tensor) const {
    return std::string(GgufFile::Open(folder_ / file).RequireTensor(tensor).type->name);
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(QuantizeCommands, QuantizeTakesTheArgumentsOfLlamaQuantize) {
  const ProgramRun run = Run({"quantize", "--tensor-type", "attn_v=q8_0", "--token-embedding-type",
                              "q5_1", "@tiny.gguf", "@out.gguf", "q4_k_m", "2"});
  ASSERT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("Q4_K_M"), std::string::npos) << run.output;
  EXPECT_EQ(TypeOf("out.gguf", "blk.0.attn_v.weight"), "Q8_0");
  EXPECT_EQ(TypeOf("out.gguf", "token_embd.weight"), "Q5_1");
  EXPECT_EQ(TypeOf("out.gguf", "blk.0.attn_k.weight"), "Q4_K");
  // Without a name for it the output lies beside the input.
  ASSERT_EQ(Run({"quantize", "@tiny.gguf", "Q8_0"}).code, 0);
  EXPECT_EQ(TypeOf("ggml-model-Q8_0.gguf", "blk.0.attn_k.weight"), "Q8_0");
}

TEST_F(QuantizeCommands, QuantizePrintsJson) {
  const ProgramRun run = Run({"quantize", "--json", "@tiny.gguf", "@out.gguf", "q6_k"});
  ASSERT_EQ(run.code, 0) << run.messages;
  const boost::json::object out = boost::json::parse(run.output).as_object();
  EXPECT_EQ(out.at("type"), "Q6_K");
  EXPECT_EQ(out.at("written"), true);
  const double error = out.at("formats").at("Q6_K").at("relative_error").as_double();
  EXPECT_GT(error, 0.001);
  EXPECT_LT(error, 0.05);
  EXPECT_EQ(out.at("tensors").as_array().size(), GgufFile::Open(model_).tensor_count());
}

TEST_F(QuantizeCommands, ImatrixIsCollectedCombinedAndUsed) {
  ProgramRun run = Run(
      {"imatrix", "-m", "@tiny.gguf", "-f", "@text", "-o", "@m.gguf", "-c", "64", "--chunks", "3"});
  ASSERT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("14 matrices from 3 pieces of 64 tokens, perplexity"),
            std::string::npos)
      << run.output;
  run = Run({"imatrix", "--in-file", "@m.gguf", "--in-file", "@m.gguf", "-o", "@twice.gguf"});
  ASSERT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("14 matrices from 6 pieces"), std::string::npos) << run.output;
  run = Run({"imatrix", "--show-statistics", "--in-file", "@twice.gguf"});
  EXPECT_NE(run.output.find("blk.0.attn_q.weight"), std::string::npos) << run.output;
  EXPECT_EQ(Run({"quantize", "@tiny.gguf", "@out.gguf", "IQ2_XS"}).code, 2);
  run = Run({"quantize", "--imatrix", "@twice.gguf", "@tiny.gguf", "@out.gguf", "IQ2_XS"});
  ASSERT_EQ(run.code, 0) << run.messages;
  EXPECT_EQ(TypeOf("out.gguf", "blk.0.attn_k.weight"), "IQ2_XS");
  run = Run({"ppl", "-m", "@out.gguf", "-f", "@text", "-c", "64", "-q"});
  EXPECT_EQ(run.code, 0) << run.messages;
}

TEST_F(QuantizeCommands, WrongUsageIsRefusedInOneLine) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"quantize", "@tiny.gguf"}, "quantize: expected IN [OUT] TYPE, found 1 arguments"},
      {{"quantize", "@tiny.gguf", "@out.gguf", "q4_0", "many"},
       "quantize: expected a number of threads after the type, found 'many'"},
      {{"quantize", "--tensor-type", "q8_0", "@tiny.gguf", "@out.gguf", "q4_0"},
       "--tensor-type: expected PATTERN=TYPE, found 'q8_0'"},
      {{"imatrix", "-m", "@tiny.gguf", "-o", "@m.gguf"},
       "imatrix: expected a text (-f FILE), or --in-file FILE"},
      {{"imatrix", "--show-statistics"}, "--show-statistics: expected --in-file FILE beside it"},
      {{"synth", "--arch", "gpt-oss", "--size", "1b", "-o", "@x.gguf"},
       "--size: expected one of 20b, 120b for gpt-oss, found '1b'"}};
  for (const auto& [arguments, expected] : cases) {
    const ProgramRun run = Run(arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.messages, "lockstep: " + expected + "\n");
  }
}

TEST_F(QuantizeCommands, SynthWritesAModelThatRuns) {
  ProgramRun run =
      Run({"synth", "--arch", "llama", "--size", "135m", "--type", "q4_0", "-o", "@s.gguf"});
  ASSERT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("SmolLM2-135M, 272 tensors, 0.135 G weights"), std::string::npos)
      << run.output;
  run = Run({"ppl", "-m", "@s.gguf", "-f", "@text", "-c", "64", "--chunks", "1", "-q"});
  EXPECT_EQ(run.code, 0) << run.messages;
}

}  // namespace
}  // namespace lockstep
