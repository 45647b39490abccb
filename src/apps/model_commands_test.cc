// The commands that run a model, on a tiny one with random weights.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tiny_model.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>

#include "apps/bench_report.h"
#include "apps/program_run.h"
#include "engine/sha256.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

using test::TempFolder;
using test::TinyModel;
using test::TinyOptions;

constexpr char kTemplate[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class ModelCommands : public ::testing::Test {
 protected:
  ModelCommands() : model_(folder_ / "tiny.gguf") {
    TinyModel model((TinyOptions()));
    model.keys["tokenizer.chat_template"] = kTemplate;
    model.Write(model_);
    std::string text;
    for (int i = 0; i < 40; ++i) text += fmt::format("line {} of a text\n", i);
    text_ = folder_.Put("text", text);
  }

  ProgramRun Run(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument == "MODEL") argument = model_;
      if (argument == "TEXT") argument = text_;
      if (argument.starts_with("DIR")) argument = folder_ / argument.substr(3);
    }
    return RunProgram({arguments.begin(), arguments.end()});
  }

  // Runs `lockstep ARGUMENTS` in a shell; MODEL and TEXT stand for the files. stdout alone, unless
  // the arguments say otherwise.
  ShellRun Shell(std::string command) const {
    for (auto [word, path] : {std::pair<std::string, std::string>{"LOCKSTEP", LOCKSTEP_PROGRAM},
                              {"MODEL", model_},
                              {"TEXT", text_}}) {
      for (size_t at; (at = command.find(word)) != command.npos;) {
        command.replace(at, word.size(), path);
      }
    }
    return RunShell(command);
  }

  TempFolder folder_;
  std::string model_, text_;
};

TEST_F(ModelCommands, UnacceptableModelsAreRefusedInOneLine) {
  folder_.Put("empty", "");
  folder_.Put("cut", ReadFile(model_, 1 << 24).substr(0, 9000));
  folder_.Put("short", ReadFile(model_, 1 << 24).substr(0, 200000));
  std::filesystem::create_directory(folder_ / "folder");
  const std::vector<std::vector<std::string>> commands = {{"run", "-p", "a"},
                                                          {"chat", "-p", "a", "-st"},
                                                          {"logits", "-p", "a", "-o", "DIRout"},
                                                          {"ppl", "-f", "TEXT"},
                                                          {"bench"},
                                                          {"inspect", "--graph"},
                                                          {"inspect", "--program"}};
  for (const auto& command : commands) {
    for (std::string file : {"DIRmissing", "DIRempty", "DIRcut", "DIRshort", "DIRfolder"}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"-m", file});
      const ProgramRun run = Run(arguments);
      EXPECT_EQ(run.code, 2) << command[0] << " " << file << ": " << run.messages;
      EXPECT_EQ(run.output, "") << command[0] << " " << file;
      EXPECT_EQ(std::ranges::count(run.messages, '\n'), 1) << run.messages;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(ModelCommands, WrongUsageIsRefusedInOneLine) {
  struct Case {
    std::vector<std::string> arguments;
    int code;
    std::string says;
  };
  folder_.Put("short", "a few words");
  for (const Case& c : std::initializer_list<Case>{
           {{"run", "-m", "MODEL"}, 2, "run: expected a text"},
           {{"run", "-m", "MODEL", "-p", "a", "--grammar", "root ::= \"a\""},
            2,
            "--grammar: not built yet"},
           {{"chat", "-m", "MODEL", "-p", "a", "--json-schema", "{}"},
            2,
            "--json-schema: not built yet"},
           {{"run", "-m", "MODEL", "-p", "a", "--load-state", "DIRabsent"}, 2, "absent: "},
           {{"run", "-m", "MODEL", "-p", ""}, 2, "prompt: expected at least one token, found none"},
           {{"run", "-m", "MODEL", "-p", "abcdefgh", "-c", "4"},
            2,
            "prompt: expected fewer than 4"},
           {{"run", "-p", "a"}, 2, "run: expected -m"},
           {{"run", "-m", "MODEL", "-p", "a", "-ctk", "q3"}, 2, "-ctk: expected one of"},
           {{"logits", "-m", "MODEL", "-o", "DIRx"}, 2, "logits: expected one of --tokens"},
           {{"logits", "-m", "MODEL", "-p", "a"}, 2, "logits: expected -o"},
           {{"logits", "-m", "MODEL", "-p", "a", "--tokens", "1", "-o", "DIRx"},
            2,
            "found several"},
           {{"logits", "-m", "MODEL", "-p", "", "-o", "DIRx"}, 2, "at least one token, found none"},
           {{"logits", "-m", "MODEL", "--tokens", "300", "-o", "DIRx"}, 2, "below 300, found 300"},
           {{"logits", "-m", "MODEL", "--tokens", "1-9", "-c", "8", "-o", "DIRx"},
            2,
            "context: expected at least 9 positions"},
           {{"logits", "-m", "MODEL", "--tokens", "1", "--mtp", "-o", "DIRx"},
            2,
            "nextn_predict_layers: expected a block"},
           {{"logits", "-m", "MODEL", "-md", "MODEL", "--tokens", "1", "-o", "DIRx"},
            2,
            "general.architecture: expected a draft, one of"},
           {{"logits", "-m", "MODEL", "--tokens-from", "DIRnone", "-o", "DIRx"}, 2, "DIRnone"},
           {{"logits", "-m", "MODEL", "--tokens-from", "MODEL", "-o", "DIRx"}, 2, "header"},
           {{"logits", "-m", "MODEL", "--tokens", "1", "-o", "/dev/full"}, 1, "No space left"},
           {{"logits", "-m", "MODEL", "--tokens", "1", "-o", "DIR"}, 1, "found a directory"},
           {{"logits", "-m", "MODEL", "--tokens", "1", "-o", "DIRno/x"}, 1, "No such file"},
           {{"ppl", "-m", "MODEL"}, 2, "ppl: expected -f"},
           {{"ppl", "-m", "MODEL", "-f", "DIRnone"}, 2, "DIRnone"},
           {{"ppl", "-m", "MODEL", "-f", "TEXT", "-c", "2"}, 2, "window: expected at least 3"},
           {{"ppl", "-m", "MODEL", "-c", "512", "--chunks", "1", "-f", "DIRshort"},
            2,
            "at least one window"},
           {{"ppl", "-m", "MODEL", "-f", "TEXT", "--ppl-mode", "x"}, 2, "--ppl-mode"},
           {{"ppl", "-m", "MODEL", "-f", "TEXT", "-c", "64", "--ppl-stride", "64"}, 2, "stride"},
           {{"ppl", "-m", "MODEL", "-f", "TEXT", "-c", "64", "--chunks", "0"}, 2, "--chunks"},
           {{"ppl", "-m", "MODEL", "--kl-divergence", "-f", "TEXT"}, 2, "expected --kl-base"},
           {{"ppl", "-m", "MODEL", "--kl-from", "TEXT"}, 2, "header"},
           {{"bench", "-m", "MODEL", "-p", "0", "-n", "0"}, 2, "something to measure"},
           {{"bench", "-m", "MODEL", "-pg", "5"}, 2, "expected P,N"},
           {{"bench", "-m", "MODEL", "-o", "xml"}, 2, "-o: expected one of md"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template", "none"},
            2,
            "found 'none'"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template", "{% if %}"},
            2,
            "--chat-template"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template-file", "DIRnone"},
            2,
            "DIRnone"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template-kwargs", "[1]"},
            2,
            "expected a JSON object"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template-kwargs", "{"},
            2,
            "--chat-template-kwargs"},
           {{"chat", "-m", "MODEL", "-p", "a", "-st", "--chat-template",
             "{{ raise_exception('no ' ~ 'way') }}"},
            2,
            "no way"},
           {{"chat", "-m", "MODEL", "-p", "abcdefgh", "-st", "-c", "8"},
            1,
            "--ctx-size makes room"},
       }) {
    const ProgramRun run = Run(c.arguments);
    std::string line;
    for (const std::string& argument : c.arguments) line += argument + " ";
    std::string says = c.says;
    if (says.starts_with("DIR")) says = folder_ / says.substr(3);
    EXPECT_EQ(run.code, c.code) << line << run.messages;
    EXPECT_NE(run.messages.find(says), run.messages.npos) << line << run.messages;
    EXPECT_EQ(std::ranges::count(run.messages, '\n'), 1) << line << run.messages;
    EXPECT_EQ(run.output, "") << line;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x")) << line;
  }
}

TEST_F(ModelCommands, LogitsWritesWhatItHashes) {
  const ProgramRun run =
      Run({"logits", "-m", "MODEL", "--tokens", "5,6,7-20", "-o", "DIRa", "--hidden"});
  ASSERT_EQ(run.code, 0) << run.messages;
  const Safetensors file = Safetensors::Open(folder_ / "a");
  EXPECT_EQ(file.Require("tokens").shape, (std::vector<uint64_t>{16}));
  EXPECT_EQ(file.Require("tokens").type->name, "I32");
  const SafetensorsTensor& logits = file.Require("logits");
  EXPECT_EQ(logits.shape, (std::vector<uint64_t>{16, 300}));
  EXPECT_EQ(run.output, Sha256Hex(logits.data) + "\n");
  for (std::string_view name : {"hidden.0", "hidden.1", "hidden.2"}) {
    EXPECT_EQ(file.Require(name).shape, (std::vector<uint64_t>{16, 64})) << name;
  }
  EXPECT_EQ(file.tensors().size(), 5u);

  // The same tokens from the file, in other pieces and by other threads.
  for (std::string threads : {"1", "3"}) {
    for (std::string piece : {"1", "5", "512"}) {
      const ProgramRun again = Run({"logits", "-m", "MODEL", "--tokens-from", "DIRa", "-o", "DIRb",
                                    "-t", threads, "-ub", piece});
      EXPECT_EQ(again.output, run.output) << threads << " " << piece << again.messages;
    }
  }
  EXPECT_EQ(Safetensors::Open(folder_ / "b").tensors().size(), 2u);
}

TEST_F(ModelCommands, TokensFromAFileAreChecked) {
  const int64_t wide[] = {5, 6}, negative[] = {-1};
  const float reals[] = {1};
  const int32_t ids[] = {5, 6};
  struct Case {
    SafetensorsItem item;
    std::string says;  // empty: accepted
  };
  auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  for (const Case& c : std::initializer_list<Case>{
           {{"tokens", "I64", {2}, bytes(wide)}, ""},
           {{"tokens", "I32", {2}, bytes(ids)}, ""},
           {{"tokens", "I64", {1}, bytes(negative)}, "expected ids from 0"},
           {{"tokens", "F32", {1}, bytes(reals)}, "expected I32 or I64, found F32"},
           {{"tokens", "I32", {1, 2}, bytes(ids)}, "expected one dimension, found 2"},
           {{"tokens", "I32", {0}, {}}, "at least one token"},
           {{"other", "I32", {2}, bytes(ids)}, "tokens: tensor is missing"}}) {
    WriteSafetensors(folder_ / "tokens", std::span(&c.item, 1));
    const ProgramRun run =
        Run({"logits", "-m", "MODEL", "--tokens-from", "DIRtokens", "-o", "DIRout"});
    EXPECT_EQ(run.code, c.says.empty() ? 0 : 2) << c.says << run.messages;
    EXPECT_NE(run.messages.find(c.says), run.messages.npos) << run.messages;
  }
}

TEST_F(ModelCommands, PplIsOneNumberHoweverItIsComputed) {
  for (std::string mode : {"full", "half"}) {
    std::string first;
    for (const std::vector<std::string>& shape : std::vector<std::vector<std::string>>{
             {}, {"-t", "1"}, {"-ub", "7"}, {"-t", "3", "-ub", "33"}, {"-b", "1"}}) {
      std::vector<std::string> arguments = {"ppl", "-m", "MODEL",      "-f", "TEXT",
                                            "-c",  "48", "--ppl-mode", mode, "--json"};
      arguments.insert(arguments.end(), shape.begin(), shape.end());
      const ProgramRun run = Run(arguments);
      ASSERT_EQ(run.code, 0) << run.messages;
      if (first.empty()) first = run.output;
      EXPECT_EQ(run.output, first);
    }
    const boost::json::value json = ParseJson("ppl", first);
    // Random weights know little more than nothing of 300 tokens.
    EXPECT_GT(json.at("perplexity").as_double(), 50);
    EXPECT_LT(json.at("perplexity").as_double(), 3000);
    const int64_t scored = mode == "full" ? 47 : 23;
    EXPECT_EQ(json.at("tokens").as_int64(), scored * json.at("windows").as_int64());
  }
}

TEST_F(ModelCommands, DivergenceFromTheSameRunIsZeroAndFromAnotherIsNot) {
  const std::vector<std::string> save = {"ppl", "-m",        "MODEL",   "-f",       "TEXT", "-c",
                                         "48",  "--kl-base", "DIRbase", "--chunks", "2"};
  ASSERT_EQ(Run(save).code, 0);
  const ProgramRun same = Run({"ppl", "-m", "MODEL", "--kl-from", "DIRbase", "--json", "-ub", "5"});
  ASSERT_EQ(same.code, 0) << same.messages;
  const boost::json::value json = ParseJson("ppl", same.output);
  EXPECT_EQ(json.at("windows").as_int64(), 2);
  EXPECT_EQ(json.at("mean_kl").as_double(), 0);
  EXPECT_EQ(json.at("rms_probability_difference").as_double(), 0);
  EXPECT_EQ(json.at("same_top").as_double(), 1);
  EXPECT_EQ(json.at("perplexity_ratio").as_double(), 1);

  // llama.cpp's spelling, and another arithmetic.
  const ProgramRun other = Run({"ppl", "-m", "MODEL", "--kl-base", "DIRbase", "--kl-divergence",
                                "-ctk", "q4_0", "-ctv", "q4_0", "--json"});
  ASSERT_EQ(other.code, 0) << other.messages;
  EXPECT_GT(ParseJson("ppl", other.output).at("mean_kl").as_double(), 1e-7);
  const ProgramRun text = Run({"ppl", "-m", "MODEL", "--kl-from", "DIRbase"});
  EXPECT_EQ(std::ranges::count(text.output, '\n'), 5) << text.output;
}

TEST_F(ModelCommands, BadBasesAreRefusedInOneLine) {
  const std::vector<int32_t> tokens = {1, 5, 6, 7}, bad_tokens = {1, 5, 6, 300};
  std::vector<float> logits(2 * 300), nan = logits, narrow(2 * 299);
  nan[17] = std::nanf("");
  auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  struct Case {
    std::vector<SafetensorsItem> items;
    std::string says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{{"tokens", "I32", {1, 4}, bytes(tokens)}}, "logits: tensor is missing"},
           {{{"tokens", "I32", {4}, bytes(tokens)}, {"logits", "F32", {1, 2, 300}, bytes(logits)}},
            "expected tokens I32 [w, c]"},
           {{{"tokens", "I32", {2, 2}, bytes(tokens)},
             {"logits", "F32", {2, 1, 300}, bytes(logits)}},
            ""},
           {{{"tokens", "I32", {2, 2}, bytes(tokens)},
             {"logits", "F32", {1, 2, 300}, bytes(logits)}},
            "expected tokens I32 [w, c]"},
           {{{"tokens", "I32", {1, 4}, bytes(tokens)},
             {"logits", "F32", {1, 2, 299}, bytes(narrow)}},
            "expected 300 tokens, those of the model, found 299"},
           {{{"tokens", "I32", {1, 4}, bytes(bad_tokens)},
             {"logits", "F32", {1, 2, 300}, bytes(logits)}},
            "expected ids below 300, found 300"},
           {{{"tokens", "I32", {1, 4}, bytes(tokens)}, {"logits", "F32", {1, 2, 300}, bytes(nan)}},
            "expected finite numbers"},
           {{{"tokens", "I32", {0, 4}, {}}, {"logits", "F32", {0, 2, 300}, {}}},
            "expected tokens I32 [w, c]"}}) {
    WriteSafetensors(folder_ / "base", c.items);
    const ProgramRun run = Run({"ppl", "-m", "MODEL", "--kl-from", "DIRbase"});
    EXPECT_EQ(run.code, c.says.empty() ? 0 : 2) << c.says << ": " << run.messages;
    EXPECT_NE(run.messages.find(c.says), run.messages.npos) << c.says << ": " << run.messages;
    EXPECT_EQ(std::ranges::count(run.messages, '\n'), c.says.empty() ? 0 : 1) << run.messages;
  }
}

TEST_F(ModelCommands, BenchPrintsOneTableInFourFormats) {
  std::vector<std::string> bench = {"bench", "-m", "MODEL", "-p", "8",   "-n",  "2",  "-d",
                                    "0,16",  "-r", "2",     "-t", "1,2", "-pg", "4,2"};
  auto run_with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = bench;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  const ProgramRun table = run_with({"--plot", "DIRplot.svg"});
  ASSERT_EQ(table.code, 0) << table.messages;
  // Head and rule, then 2 numbers of threads x 2 depths x 3 tests.
  EXPECT_EQ(std::ranges::count(table.output, '\n'), 2 + 12) << table.output;
  for (std::string_view name : {" pp8 ", " tg2 ", " pp4+tg2 ", " pp8 @ d16 ", " tg2 @ d16 "}) {
    EXPECT_NE(table.output.find(name), table.output.npos) << table.output;
  }
  const std::string svg = ReadFile(folder_ / "plot.svg", 1 << 20);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << svg;

  const boost::json::value json = ParseJson("bench", run_with({"--json"}).output);
  const boost::json::array& results = json.at("results").as_array();
  ASSERT_EQ(results.size(), 12u);
  EXPECT_EQ(results[0].at("test").as_string(), "pp8");
  EXPECT_EQ(results[0].at("samples_tokens_per_s").as_array().size(), 2u);
  for (const boost::json::value& result : results) {
    EXPECT_GT(result.at("tokens_per_s").as_double(), 0);
    const bool prompt = result.at("n_gen").as_int64() == 0;
    const bool answer = result.at("n_prompt").as_int64() == 0;
    EXPECT_EQ(result.as_object().contains("ops_per_s"), prompt);
    EXPECT_EQ(result.as_object().contains("bytes_per_s"), answer);
    EXPECT_EQ(result.as_object().contains("share_of_limit"), prompt || answer);
  }
  const std::string lines = run_with({"-o", "jsonl"}).output;
  EXPECT_EQ(std::ranges::count(lines, '\n'), 12);
  EXPECT_NO_THROW(ParseJson("line", lines.substr(0, lines.find('\n'))));
  EXPECT_EQ(std::ranges::count(run_with({"-o", "csv"}).output, '\n'), 13);
}

TEST(BenchReport, TextOfAFileBreaksNoFormat) {
  BenchModel model{"file", "a\"b,<c>&\n\xff|", 100, 10, "portable"};
  BenchResult result{{.prompt = 1}, 2};
  result.tokens_per_s.Add(5);
  result.samples = {5};
  const std::span<const BenchResult> results(&result, 1);
  for (std::string_view format : {"json", "jsonl"}) {
    EXPECT_NO_THROW(ParseJson("text", BenchTable(format, model, results)));
  }
  EXPECT_EQ(std::ranges::count(BenchTable("md", model, results), '\n'), 3);
  EXPECT_EQ(std::ranges::count(BenchTable("csv", model, results), '\n'), 2);
  const std::string svg = BenchSvg(model, results);
  EXPECT_EQ(svg.find("<c>"), svg.npos);
  EXPECT_NE(svg.find("&lt;c&gt;&amp;"), svg.npos);
  EXPECT_EQ(Deviation(std::vector<double>{1, 2, 3}), 1);
}

TEST_F(ModelCommands, InspectPrintsGraphAndProgramWithoutWeights) {
  const ProgramRun graph = Run({"inspect", "-m", "MODEL", "--graph"});
  EXPECT_EQ(graph.code, 0) << graph.messages;
  EXPECT_NE(graph.output.find("blk.1.q "), graph.output.npos) << graph.output;
  EXPECT_EQ(graph.output.find("barrier"), graph.output.npos);
  const ProgramRun program = Run({"inspect", "-m", "MODEL", "--program"});
  EXPECT_EQ(program.code, 0) << program.messages;
  EXPECT_NE(program.output.find("---- barrier"), program.output.npos) << program.output;

  TinyModel lacking((TinyOptions()));
  lacking.Remove("blk.1.ffn_up.weight");
  lacking.Write(model_);
  const ProgramRun refused = Run({"inspect", "-m", "MODEL", "--program"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.messages.find("blk.1.ffn_up.weight"), refused.messages.npos)
      << refused.messages;
}

TEST_F(ModelCommands, SameSeedSameTextHoweverTheRunIsShaped) {
  std::vector<std::string> run = {"run", "-m", "MODEL",  "-p", "Once",
                                  "-n",  "12", "--seed", "7",  "-q"};
  const std::string text = Run(run).output;
  EXPECT_GT(text.size(), 1u);
  run.insert(run.end(), {"-t", "1", "-ub", "1"});
  EXPECT_EQ(Run(run).output, text);
}

TEST_F(ModelCommands, RunSaysWhereTheContextEndsAnAnswer) {
  std::vector<std::string> run = {"run", "-m", "MODEL", "-p", "a", "-c", "8", "--ignore-eos"};
  const ProgramRun full = Run(run);
  EXPECT_EQ(full.code, 0);
  EXPECT_NE(full.messages.find("context is full, at 8 positions"), full.messages.npos);
  run.insert(run.end(), {"-n", "2"});
  EXPECT_EQ(Run(run).messages.find("context is full"), std::string::npos);
}

TEST_F(ModelCommands, ChatAnswersLinesOfStdinUntilTheyEnd) {
  const std::string chat = "LOCKSTEP chat -m MODEL -n 3 --temp 0 --no-show-timings --config none";
  const ShellRun two = Shell("printf 'one\\ntwo' | " + chat);
  EXPECT_EQ(two.code, 0);
  EXPECT_GE(std::ranges::count(two.output, '\n'), 2) << two.output;
  // A first message by option, a word that clears, and the same answer again.
  const ShellRun cleared = Shell("printf '/clear\\none\\n/exit\\nnever\\n' | " + chat + " -p one");
  const std::string one = Shell("printf 'one\\n' | " + chat).output;
  EXPECT_EQ(cleared.output, one + one);
  EXPECT_EQ(Shell(chat + " -p one -st </dev/null").output, one);
  // Lines joined by a backslash are one message.
  EXPECT_EQ(Shell("printf 'a\\\\\\nb\\n' | " + chat).output,
            Shell(chat + " -st -p 'a\\nb' </dev/null").output);
  EXPECT_EQ(Shell("printf 'a\\nb\\n\\n' | " + chat + " -mli").output,
            Shell(chat + " -st -p 'a\\nb' </dev/null").output);
  EXPECT_EQ(Shell("printf '' | " + chat).output, "");
}

TEST_F(ModelCommands, ChatObeysItsWords) {
  const std::string chat =
      "LOCKSTEP chat -m MODEL -n 3 --temp 0 --no-show-timings --config none 2>&1";
  const ShellRun help = Shell("echo /help | " + chat);
  for (std::string_view word : {"/help", "/clear", "/regen", "/system", "/stats", "/exit"}) {
    EXPECT_NE(help.output.find(word), help.output.npos) << help.output;
  }
  EXPECT_NE(Shell("echo /bogus | " + chat).output.find("/bogus: no such command"),
            std::string::npos);
  EXPECT_NE(Shell("echo /regen | " + chat).output.find("no answer yet"), std::string::npos);
  EXPECT_NE(Shell("echo /stats | " + chat).output.find("no answer yet"), std::string::npos);
  const std::string one = Shell("printf 'one\\n' | " + chat).output;
  EXPECT_EQ(Shell("printf 'one\\n/regen\\n' | " + chat).output, one + one);
  EXPECT_EQ(Shell("printf '/system Be\\none\\n' | " + chat).output,
            Shell("printf 'one\\n' | " + chat + " -sys Be").output);
  EXPECT_NE(Shell("printf 'one\\n/stats\\n' | " + chat).output.find("1 answers, 3 tokens"),
            std::string::npos);
}

TEST_F(ModelCommands, ChatUsesTheTemplateItIsGiven) {
  const std::string chat =
      "LOCKSTEP chat -m MODEL -n 1 --temp 0 -st --verbose-prompt -p hi "
      "--no-show-timings --config none 2>&1 </dev/null | grep prompt:";
  EXPECT_EQ(Shell(chat).output, "lockstep: prompt: [user]hi[assistant]\n");
  const std::string file = folder_.Put("template", "<{{ messages[0].content }}{{ x }}>");
  const std::string with = std::string(chat).replace(chat.find("-st"), 3, "-st OPTIONS");
  auto given = [&](std::string_view options) {
    std::string command = with;
    return Shell(command.replace(command.find("OPTIONS"), 7, options)).output;
  };
  EXPECT_EQ(given("--chat-template-file " + file), "lockstep: prompt: <hi>\n");
  EXPECT_EQ(given("--chat-template-file " + file + " --chat-template-kwargs '{\"x\": 5}'"),
            "lockstep: prompt: <hi5>\n");
  EXPECT_EQ(given("--chat-template '{{ messages[0].content }}!'"), "lockstep: prompt: hi!\n");
  EXPECT_EQ(given("-sys Be"), "lockstep: prompt: [system]Be[user]hi[assistant]\n");
}

TEST_F(ModelCommands, ReadersAndDisksThatGoAwayEndTheRun) {
  for (std::string command :
       {"run -m MODEL -p a -n 50 -q", "ppl -m MODEL -f TEXT -c 48 -q",
        "bench -m MODEL -p 4 -n 1 -r 1 -q", "inspect -m MODEL --program",
        "logits -m MODEL --tokens 1 -o /dev/null", "chat -m MODEL -p a -n 50 -st -q"}) {
    const std::string line = "LOCKSTEP " + command + " --config none";
    EXPECT_EQ(Shell("bash -c '" + line + " | true; echo ${PIPESTATUS[0]}'").output, "0\n") << line;
    const ShellRun full = Shell(line + " 2>&1 >/dev/full");
    EXPECT_EQ(full.code, 1) << line;
    EXPECT_EQ(full.output, "lockstep: writing to stdout: No space left on device\n") << line;
  }
}

}  // namespace
}  // namespace lockstep
