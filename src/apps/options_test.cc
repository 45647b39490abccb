#include "apps/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/command.h"
#include "base/file.h"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

Environment Environ(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

ParsedCommand Parse(Cmd command, std::vector<std::string_view> arguments,
                    Variables variables = {}) {
  return ParseOptions(command, arguments, Environ(std::move(variables)));
}

// The one-line refusal of a command line; empty where it is accepted.
std::string Refusal(Cmd command, std::vector<std::string_view> arguments,
                    Variables variables = {}) {
  try {
    Parse(command, std::move(arguments), std::move(variables));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

std::vector<std::string> Words(std::string_view list) {
  std::vector<std::string> words;
  ForEachWord(list, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Cmd FirstCommand(const OptionRow& row) {
  for (int i = 0; i < kCommandCount; ++i) {
    if (row.commands.Has(static_cast<Cmd>(i))) return static_cast<Cmd>(i);
  }
  return Cmd::kHelp;
}

// A value that the row must accept, other than its default where that is easy to find.
std::string Example(const OptionRow& row) {
  switch (row.kind) {
    case Kind::kAction:
      return "";
    case Kind::kSwitch:
      return row.fallback == "on" ? "off" : "on";
    case Kind::kInteger:
    case Kind::kIntegers:
      return row.fallback == "1" ? "2" : "1";
    case Kind::kReal:
    case Kind::kReals:
      return "0.5";
    case Kind::kText:
    case Kind::kTexts:
    case Kind::kFile:
      return "some text";
    case Kind::kChoice:
    case Kind::kOptional:
      return std::string(row.domain.substr(0, row.domain.find('|')));
  }
  return "";
}

TEST(OptionTable, EveryRowHasANameAndAText) {
  for (const OptionRow& row : OptionTable()) {
    EXPECT_FALSE(LongName(row).empty()) << row.names;
    EXPECT_FALSE(row.help.empty()) << row.names;
    EXPECT_FALSE(row.help.ends_with('.')) << row.names;
    bool takes_value = row.kind != Kind::kSwitch && row.kind != Kind::kAction;
    EXPECT_EQ(!row.value.empty(), takes_value) << row.names;
    EXPECT_EQ(row.id == Opt::kNone, row.group == Group::kIgnored || row.group == Group::kRefused)
        << row.names;
    for (const std::string& word : Words(row.names)) {
      std::string_view spelling = word;
      if (spelling.starts_with('!')) {
        EXPECT_EQ(row.kind, Kind::kSwitch) << row.names;
        spelling.remove_prefix(1);
      }
      EXPECT_TRUE(spelling.size() >= 2 && spelling[0] == '-' && spelling != "--") << row.names;
      EXPECT_EQ(spelling.find_first_of("_= ,"), std::string_view::npos) << row.names;
    }
  }
}

TEST(OptionTable, NoTwoRowsOfACommandShareANameOrVariable) {
  for (int i = 0; i < kCommandCount; ++i) {
    std::set<std::string> seen;
    for (const OptionRow& row : OptionTable()) {
      if (!row.commands.Has(static_cast<Cmd>(i))) continue;
      std::vector<std::string> names = Words(row.names);
      std::vector<std::string> variables = Words(row.environment);
      names.insert(names.end(), variables.begin(), variables.end());
      if (!OwnVariable(row).empty()) names.push_back(OwnVariable(row));
      for (const std::string& name : names) {
        std::string spelling = name.starts_with('!') ? name.substr(1) : name;
        EXPECT_TRUE(seen.insert(spelling).second)
            << CommandName(static_cast<Cmd>(i)) << " " << spelling;
      }
    }
  }
}

TEST(OptionTable, EverySpellingOfEveryRowParsesItsExample) {
  for (const OptionRow& row : OptionTable()) {
    std::string example = Example(row);
    for (int i = 0; i < kCommandCount; ++i) {
      Cmd command = static_cast<Cmd>(i);
      if (!row.commands.Has(command)) continue;
      for (const std::string& word : Words(row.names)) {
        std::string spelling = word.starts_with('!') ? word.substr(1) : word;
        std::vector<std::string_view> arguments = {spelling};
        if (!row.value.empty()) arguments.push_back(example);
        if (row.id == Opt::kConfig) arguments[1] = "none";
        std::string error = Refusal(command, arguments);
        if (row.group == Group::kRefused && !word.starts_with('!')) {
          EXPECT_EQ(error, fmt::format("{}: not supported: {}", spelling, row.help));
          continue;
        }
        ASSERT_EQ(error, "") << row.names;
        if (row.group == Group::kRefused) continue;
        ParsedCommand parsed = Parse(command, arguments);
        EXPECT_TRUE(parsed.positional.empty()) << row.names;
        EXPECT_EQ(parsed.notices.size(), row.group == Group::kIgnored ? 1u : 0u) << row.names;
        if (row.id != Opt::kNone) {
          EXPECT_EQ(parsed.options.source(row.id), Source::kCommandLine) << row.names;
          EXPECT_TRUE(parsed.options.Has(row.id)) << row.names;
        }
        if (row.value.empty() || row.id == Opt::kConfig) continue;
        std::string joined = spelling + "=" + example;
        EXPECT_EQ(Refusal(command, {joined}), "") << joined;
      }
    }
  }
}

TEST(OptionTable, EveryVariableOfEveryRowIsRead) {
  for (const OptionRow& row : OptionTable()) {
    std::vector<std::string> names = Words(row.environment);
    if (!OwnVariable(row).empty()) names.push_back(OwnVariable(row));
    Cmd command = FirstCommand(row);
    for (const std::string& name : names) {
      if (row.id == Opt::kConfig) continue;
      if (row.group == Group::kRefused) {
        EXPECT_NE(Refusal(command, {}, {{name, Example(row)}}), "") << name;
        continue;
      }
      ParsedCommand parsed = Parse(command, {}, {{name, Example(row)}});
      if (row.group == Group::kIgnored) {
        ASSERT_EQ(parsed.notices.size(), 1u) << name;
        EXPECT_EQ(parsed.notices[0], fmt::format("{} has no effect: {}", name, row.help));
      } else {
        EXPECT_EQ(parsed.options.source(row.id), Source::kEnvironment) << name;
      }
    }
  }
}

TEST(OptionTable, EveryDefaultIsReadableAndKeptWhereNothingIsGiven) {
  for (const OptionRow& row : OptionTable()) {
    if (row.id == Opt::kNone) {
      EXPECT_EQ(row.fallback, "") << row.names;
      continue;
    }
    ParsedCommand parsed = Parse(FirstCommand(row), {});
    EXPECT_FALSE(parsed.options.Given(row.id)) << row.names;
    bool always = row.kind == Kind::kAction || row.kind == Kind::kTexts || !row.fallback.empty();
    EXPECT_EQ(parsed.options.Has(row.id), always) << row.names;
  }
}

TEST(OptionTable, NumbersOutsideTheRangeAreRefused) {
  int tried = 0;
  for (const OptionRow& row : OptionTable()) {
    size_t dots = row.domain.find("..");
    if (dots == std::string_view::npos) continue;
    std::string low(row.domain.substr(0, dots));
    std::string high(row.domain.substr(dots + 2));
    std::vector<std::string> outside;
    if (!low.empty()) outside.push_back(std::to_string(std::stoll(low) - 1));
    if (!high.empty())
      outside.push_back(std::to_string(static_cast<long long>(std::stod(high)) + 1));
    std::string name = "--" + std::string(LongName(row));
    for (const std::string& value : outside) {
      std::string error = Refusal(FirstCommand(row), {name, value});
      EXPECT_EQ(error, fmt::format("{}: expected {}, found '{}'", name, ExpectedValue(row), value));
      ++tried;
    }
  }
  EXPECT_GT(tried, 60);
}

TEST(Options, RefusalsNameOptionExpectedAndFound) {
  struct Case {
    Cmd command;
    std::vector<std::string_view> arguments;
    std::string expected;
  };
  const Case cases[] = {
      {Cmd::kRun, {"--tmep", "1"}, "run: unknown option --tmep; did you mean --temp?"},
      {Cmd::kRun,
       {"--temperatur=1"},
       "run: unknown option --temperatur; did you mean --temperature?"},
      {Cmd::kRun, {"-nlg", "1"}, "run: unknown option -nlg; did you mean -ngl?"},
      {Cmd::kRun, {"--ctx"}, "run: unknown option --ctx; did you mean --ctx-size?"},
      {Cmd::kRun,
       {"--qqqqqqqqqqqqqqq"},
       "run: unknown option --qqqqqqqqqqqqqqq; 'lockstep help run' lists the options"},
      {Cmd::kRun,
       {"--a\nb\xff"},
       "run: unknown option --a\\x0Ab\\xFF; 'lockstep help run' lists the options"},
      {Cmd::kTokenize,
       {"--temp", "1"},
       "tokenize: --temp is no option of tokenize but of run, chat, serve"},
      {Cmd::kRun, {"-m"}, "-m: expected FILE after it, found the end"},
      {Cmd::kRun,
       {"-m", "-p", "x"},
       "-m: expected FILE after it, found the option -p; write -m=-p to pass it as a value"},
      {Cmd::kRun, {"-m", ""}, "-m: expected a path, found ''"},
      {Cmd::kRun, {"-c", "abc"}, "-c: expected an integer from 0 up, found 'abc'"},
      {Cmd::kRun, {"-c", "1.5"}, "-c: expected an integer from 0 up, found '1.5'"},
      {Cmd::kRun, {"-c", "12x"}, "-c: expected an integer from 0 up, found '12x'"},
      {Cmd::kRun, {"-c", ""}, "-c: expected an integer from 0 up, found ''"},
      {Cmd::kRun,
       {"-c", "99999999999999999999"},
       "-c: expected an integer from 0 up, found '99999999999999999999'"},
      {Cmd::kRun, {"--temp", "nan"}, "--temp: expected a number, found 'nan'"},
      {Cmd::kRun, {"--temp", "inf"}, "--temp: expected a number, found 'inf'"},
      {Cmd::kRun, {"--temp", "1e999"}, "--temp: expected a number, found '1e999'"},
      {Cmd::kRun, {"--top-p=1.5"}, "--top-p: expected a number from 0 to 1, found '1.5'"},
      {Cmd::kRun,
       {"-ctk", "q9"},
       "-ctk: expected one of f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, found 'q9'"},
      {Cmd::kRun, {"-sm", "row"}, "-sm: row is not supported; use tensor"},
      {Cmd::kRun, {"-ts", "3,,1"}, "-ts: expected numbers from 0 up such as 3,1, found '3,,1'"},
      {Cmd::kRun, {"-ts", "3,-1"}, "-ts: expected numbers from 0 up such as 3,1, found '3,-1'"},
      {Cmd::kRun, {"--mlock=maybe"}, "--mlock: expected on or off, found 'maybe'"},
      {Cmd::kRun, {"--help=x"}, "--help: expected no value, found 'x'"},
      {Cmd::kBench,
       {"-p", "9-1x"},
       "-p: expected integers from 0 to 1048576 such as 1,2,3, found '9-1x'"},
      {Cmd::kBench,
       {"-p", "1-9+0"},
       "-p: expected integers from 0 to 1048576 such as 1,2,3, found '1-9+0'"},
      {Cmd::kBench,
       {"-p", "0-9*2"},
       "-p: expected integers from 0 to 1048576 such as 1,2,3, found '0-9*2'"},
      {Cmd::kRun,
       {"--rpc", "a:1"},
       "--rpc: not supported: several machines work together under mpirun"},
      {Cmd::kRun,
       {"--context-shift"},
       "--context-shift: not supported: no token is ever dropped: an answer ends where the context "
       "(--ctx-size) is full"},
      {Cmd::kRun,
       {"-hf", "a/b"},
       "-hf: not supported: models are local files: download it, then give --model FILE"},
  };
  for (const Case& c : cases) EXPECT_EQ(Refusal(c.command, c.arguments), c.expected);
}

TEST(Options, AcceptsLlamaCppCommandLines) {
  // Habits of users of llama-cli, llama-server, llama-bench, llama-perplexity and llama-quantize.
  struct Case {
    Cmd command;
    std::vector<std::string_view> arguments;
    size_t notices;
  };
  const Case cases[] = {
      {Cmd::kRun,
       {"-m", "m.gguf", "-ngl", "99", "-fa", "-c", "4096", "-n", "-1", "-p", "Hi", "--temp", "0"},
       2},
      {Cmd::kRun,
       {"-m", "m.gguf", "-ngl", "all", "-fa", "on", "-b", "512", "-ub", "512", "-t", "8", "-tb",
        "8"},
       3},
      {Cmd::kRun,
       {"-m", "m", "-no-cnv", "--no-warmup", "--mlock", "--no-mmap", "-s", "42", "--ignore-eos"},
       3},
      {Cmd::kChat,
       {"-m", "m", "-cnv", "--jinja", "-co", "-sys", "You help.", "--reasoning-budget", "0"},
       2},
      {Cmd::kServe,
       {"-m", "m", "--host", "0.0.0.0", "--port", "8081", "-np", "4", "-cb", "--metrics",
        "--api-key", "k", "-a", "x"},
       1},
      {Cmd::kServe,
       {"-m", "m", "-ot", ".ffn_.*_exps.=CPU", "--cpu-moe", "-ncmoe", "30", "-nkvo", "-ctk",
        "q8_0"},
       4},
      {Cmd::kServe,
       {"-m", "m", "-md", "d", "--draft-max", "16", "--draft-min", "1", "-ngld", "99", "-devd",
        "x"},
       2},
      {Cmd::kServe,
       {"-m", "m", "-sm", "graph", "-ts", "3,1", "-mg", "0", "-rtr", "-fmoe", "-mla", "3"},
       4},
      {Cmd::kServe,
       {"-m", "m", "--ctx_size", "10", "--no-webui", "--no-slots", "-to", "600", "--mmap"},
       1},
      {Cmd::kBench,
       {"-m", "m", "-p", "512,1024", "-n", "64", "-d", "0,8192", "-r", "3", "-fa", "1", "-mmp",
        "0"},
       2},
      {Cmd::kBench, {"-m", "m", "-pg", "512,128", "-ngl", "0,99", "-t", "1-8*2", "-o", "json"}, 1},
      {Cmd::kPpl,
       {"-m", "m", "-f", "wiki", "-c", "512", "--chunks", "16", "--kl-divergence-base", "x.kld"},
       0},
      {Cmd::kQuantize,
       {"--imatrix", "i", "--tensor-type", "attn_v=q8_0", "--pure", "in", "out", "q4_0", "4"},
       0},
      {Cmd::kTokenize,
       {"-m", "m", "-p", "x", "--ids", "--no-bos", "--no-escape", "--no-parse-special"},
       0},
  };
  for (const Case& c : cases) {
    ParsedCommand parsed = Parse(c.command, c.arguments);
    EXPECT_EQ(parsed.notices.size(), c.notices) << fmt::format("{}", c.arguments[3]);
  }
}

TEST(Options, ReadsTypedValues) {
  ParsedCommand parsed =
      Parse(Cmd::kRun, {"-m",  "a.gguf",  "-n",      "-1",    "--temp=-0.5", "--top-k", "+7",
                        "-ts", "3/1,0.5", "-sm",     "graph", "--no-escape", "-r",      "A",
                        "-r",  "",        "--color", "rest",  "--",          "-n",      "--temp"});
  const OptionValues& options = parsed.options;
  EXPECT_EQ(options.Require<std::string>(Opt::kModel), "a.gguf");
  EXPECT_EQ(options.Get<int64_t>(Opt::kPredict), -1);
  EXPECT_EQ(options.Get<double>(Opt::kTemp), -0.5);
  EXPECT_EQ(options.Get<int64_t>(Opt::kTopK), 7);
  EXPECT_EQ(options.Get<std::vector<double>>(Opt::kTensorSplit), (std::vector<double>{3, 1, 0.5}));
  enum class SplitMode { kNone, kLayer, kTensor };
  EXPECT_EQ(options.Choice<SplitMode>(Opt::kSplitMode), SplitMode::kTensor);
  EXPECT_EQ(options.Get<std::string>(Opt::kSplitMode), "tensor");
  EXPECT_FALSE(options.Get<bool>(Opt::kEscape));
  EXPECT_EQ(options.Get<std::vector<std::string>>(Opt::kReversePrompt),
            (std::vector<std::string>{"A", ""}));
  EXPECT_EQ(options.Get<std::string>(Opt::kColor), "on");
  EXPECT_EQ(parsed.positional, (std::vector<std::string>{"rest", "-n", "--temp"}));
  EXPECT_EQ(options.GetOr<std::string>(Opt::kGrammar, "none"), "none");
  try {
    options.Require<std::string>(Opt::kPrompt);
    FAIL() << "expected a refusal";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "run: expected -p, --prompt TEXT, found none");
  }
}

TEST(Options, ReadsRangesAndGathersLists) {
  struct Case {
    std::vector<std::string_view> arguments;
    std::vector<int64_t> expected;
  };
  const Case cases[] = {
      {{"-p", "1,2,3"}, {1, 2, 3}},
      {{"-p", "1-4"}, {1, 2, 3, 4}},
      {{"-p", "1-10+4"}, {1, 5, 9}},
      {{"-p", "1-64*4,7"}, {1, 4, 16, 64, 7}},
      {{"-p", "5-4"}, {}},
      {{"-p", "16", "-p", "32"}, {16, 32}},
      {{}, {512}},
      {{"--n-prompt=0"}, {0}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Parse(Cmd::kBench, c.arguments).options.Get<std::vector<int64_t>>(Opt::kBenchPrompt),
              c.expected);
  }
}

TEST(Options, ListsCannotBlowUpTheMemory) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "0-1048576,";
  many += "1";
  EXPECT_NE(Refusal(Cmd::kBench, {"-p", many}), "");
  std::string commas(2 << 20, ',');
  EXPECT_NE(Refusal(Cmd::kRun, {"-ts", commas}), "");
}

TEST(Options, LastDuplicateWins) {
  EXPECT_EQ(
      Parse(Cmd::kRun, {"-c", "1", "--ctx-size=2", "-c", "3"}).options.Get<int64_t>(Opt::kContext),
      3);
  EXPECT_TRUE(Parse(Cmd::kRun, {"--no-escape", "-e"}).options.Get<bool>(Opt::kEscape));
  EXPECT_EQ(Parse(Cmd::kRun, {"-ts", "3,1", "-ts", "1,2"})
                .options.Get<std::vector<double>>(Opt::kTensorSplit),
            (std::vector<double>{1, 2}));
}

TEST(Options, HostileArgumentsAreRefusedOrTakenInOneLine) {
  const std::string megabyte(1 << 20, 'x');
  const std::string dashes = "--" + megabyte;
  const std::string invalid = "\xff\xfe\x80\xc0";
  EXPECT_LT(Refusal(Cmd::kRun, {dashes}).size(), 400u);
  EXPECT_LT(Refusal(Cmd::kRun, {"-c", megabyte}).size(), 400u);
  EXPECT_LT(Refusal(Cmd::kRun, {"-ctk", megabyte}).size(), 400u);
  EXPECT_EQ(Parse(Cmd::kRun, {"-p", megabyte}).options.Get<std::string>(Opt::kPrompt).size(),
            megabyte.size());
  EXPECT_EQ(Parse(Cmd::kRun, {"-p", invalid}).options.Get<std::string>(Opt::kPrompt), invalid);
  EXPECT_EQ(Refusal(Cmd::kRun, {"-c", invalid}),
            "-c: expected an integer from 0 up, found '\\xFF\\xFE\\x80\\xC0'");
  EXPECT_EQ(Parse(Cmd::kRun, {"", "-", ""}).positional, (std::vector<std::string>{"", "-", ""}));
  EXPECT_EQ(Parse(Cmd::kRun, {"-p", ""}).options.Get<std::string>(Opt::kPrompt), "");
  EXPECT_NE(Refusal(Cmd::kRun, {"--="}), "");
  EXPECT_NE(Refusal(Cmd::kRun, {"-="}), "");
  EXPECT_NE(Refusal(Cmd::kRun, {"---"}), "");
  EXPECT_NE(Refusal(Cmd::kRun, {"--no-"}), "");
}

TEST(Options, NearestNameIsFoundByEditDistance) {
  struct Case {
    std::string_view name;
    std::string_view expected;
  };
  const std::string_view candidates[] = {"run", "chat", "serve", "tokenize", "bench"};
  const Case cases[] = {{"rnu", "run"},
                        {"chta", "chat"},
                        {"server", "serve"},
                        {"tokenise", "tokenize"},
                        {"token", "tokenize"},
                        {"zzzzzz", ""},
                        {"", ""}};
  for (const Case& c : cases) EXPECT_EQ(Nearest(c.name, candidates), c.expected) << c.name;
  EXPECT_EQ(Nearest(std::string(1 << 20, 'r'), candidates), "");
}

TEST(Options, CommandLineBeforeEnvironmentBeforeConfigBeforeDefault) {
  std::string path = ::testing::TempDir() + "lockstep_config_" + std::to_string(getpid());
  AtomicFile file(path);
  file.Write("temp = 0.3\nctx-size = 3\nseed = 3\n[run]\nseed = 4\nstop = x\n[chat]\nseed = 5\n");
  file.Commit();
  Variables variables = {{"LOCKSTEP_CONFIG", path},
                         {"LLAMA_ARG_CTX_SIZE", "2"},
                         {"LOCKSTEP_TOP_K", "2"},
                         {"LOCKSTEP_PREDICT", ""}};
  OptionValues options = Parse(Cmd::kRun, {"--top-k", "1"}, variables).options;
  EXPECT_EQ(options.Get<int64_t>(Opt::kTopK), 1);
  EXPECT_EQ(options.Get<int64_t>(Opt::kContext), 2);
  EXPECT_EQ(options.Get<double>(Opt::kTemp), 0.3);
  EXPECT_EQ(options.Get<int64_t>(Opt::kSeed), 4)
      << "a command's section comes before the lines for all";
  EXPECT_EQ(options.Get<double>(Opt::kTopP), 0.95);
  EXPECT_EQ(options.source(Opt::kPredict), Source::kDefault) << "an empty variable counts as unset";
  EXPECT_EQ(options.source(Opt::kTopK), Source::kCommandLine);
  EXPECT_EQ(options.source(Opt::kContext), Source::kEnvironment);
  EXPECT_EQ(options.source(Opt::kTemp), Source::kConfig);
  EXPECT_EQ(options.source(Opt::kSeed), Source::kConfigSection);
  EXPECT_EQ(Parse(Cmd::kChat, {}, variables).options.Get<int64_t>(Opt::kSeed), 5);
  EXPECT_EQ(Parse(Cmd::kRun, {"-r", "y"}, variables)
                .options.Get<std::vector<std::string>>(Opt::kReversePrompt),
            (std::vector<std::string>{"y"}))
      << "a list takes the values of one source";
  EXPECT_EQ(Parse(Cmd::kRun, {"--config", "none"}, variables).options.Get<double>(Opt::kTemp), 0.8);
  EXPECT_EQ(Parse(Cmd::kRun, {"--config=none", "--config", path}, variables)
                .options.Get<double>(Opt::kTemp),
            0.3);
  EXPECT_EQ(Parse(Cmd::kTokenize, {}, variables).options.Get<double>(Opt::kTemp), 0.8);
  unlink(path.c_str());
  EXPECT_EQ(Refusal(Cmd::kRun, {"--config", path}),
            "--config: " + path + ": No such file or directory");
  EXPECT_EQ(Refusal(Cmd::kRun, {"--help", "--config", path}), "") << "help needs no config file";
}

TEST(Options, FindsTheDefaultConfigFile) {
  std::string folder = ::testing::TempDir() + "lockstep_xdg_" + std::to_string(getpid());
  std::string command = "mkdir -p " + folder + "/lockstep " + folder + "/.config/lockstep";
  ASSERT_EQ(std::system(command.c_str()), 0);
  AtomicFile xdg(folder + "/lockstep/config");
  xdg.Write("temp = 0.1");
  xdg.Commit();
  AtomicFile home(folder + "/.config/lockstep/config");
  home.Write("temp = 0.2");
  home.Commit();
  auto temp = [](Variables variables) {
    return Parse(Cmd::kRun, {}, variables).options.Get<double>(Opt::kTemp);
  };
  EXPECT_EQ(temp({{"XDG_CONFIG_HOME", folder}, {"HOME", folder}}), 0.1);
  EXPECT_EQ(temp({{"HOME", folder}}), 0.2);
  EXPECT_EQ(temp({{"XDG_CONFIG_HOME", "relative"}, {"HOME", folder}}), 0.2);
  EXPECT_EQ(temp({{"XDG_CONFIG_HOME", folder + "/nowhere"}, {"HOME", folder}}), 0.8);
  command = "rm -r " + folder;
  ASSERT_EQ(std::system(command.c_str()), 0);
}

TEST(Options, SwitchVariablesOfBothSignsAreRead) {
  EXPECT_FALSE(Parse(Cmd::kServe, {}, {{"LLAMA_ARG_NO_CACHE_PROMPT", "1"}})
                   .options.Get<bool>(Opt::kCachePrompt));
  EXPECT_FALSE(Parse(Cmd::kServe, {}, {{"LLAMA_ARG_CACHE_PROMPT", "disabled"}})
                   .options.Get<bool>(Opt::kCachePrompt));
  EXPECT_FALSE(
      Parse(Cmd::kServe, {}, {{"LOCKSTEP_CACHE_PROMPT", "off"}, {"LLAMA_ARG_CACHE_PROMPT", "on"}})
          .options.Get<bool>(Opt::kCachePrompt));
  EXPECT_EQ(Refusal(Cmd::kServe, {}, {{"LLAMA_ARG_AGENT", "0"}}), "")
      << "turning off what is not there is fine";
  EXPECT_EQ(Refusal(Cmd::kServe, {}, {{"LLAMA_ARG_PORT", "http"}}),
            "LLAMA_ARG_PORT: expected an integer from 0 to 65535, found 'http'");
}

struct ConfigCase {
  std::string text;
  std::string expected;  // refusal, after the path
};

TEST(OptionsConfig, RefusalsNameFileAndLine) {
  const ConfigCase cases[] = {
      {"temp 0.5", "f:1: expected NAME = VALUE, found 'temp 0.5'"},
      {"\n# c\n; c\n = 5", "f:4: expected NAME = VALUE, found '= 5'"},
      {"--temp = 5", "f:1: expected NAME = VALUE, found '--temp = 5'"},
      {"a b = 5", "f:1: expected NAME = VALUE, found 'a b = 5'"},
      {"tmep = 5", "f:1: unknown option --tmep; did you mean --temp?"},
      {"\n\ntemp = hot", "f:3: temp: expected a number, found 'hot'"},
      {"top-p = 7", "f:1: top-p: expected a number from 0 to 1, found '7'"},
      {"[rnu]", "f:1: unknown command rnu; did you mean run"},
      {"[run", "f:1: expected [command], found '[run'"},
      {"[]", "f:1: unknown command "},
      {"[tokenize]\ntemp = 1", "f:2: --temp is no option of tokenize but of run, chat, serve"},
      {"[serve]\nport = x", "f:2: port: expected an integer from 0 to 65535, found 'x'"},
      {"help = on", "f:1: help: expected an option that a file can set"},
      {"config = x", "f:1: config: expected an option that a file can set"},
      {"prompt = \"a", "f:1: prompt: expected a closing quote at the end of the line"},
      {"prompt = \"a\" b", "f:1: prompt: expected a closing quote at the end of the line"},
      {"prompt = \"\\q\"", "f:1: prompt: expected \\n, \\t, \\\" or \\\\ in quotes, found '\\q'"},
      {"rpc = a:1", "f:1: rpc: not supported: several machines work together under mpirun"},
      {"grammar-file = ", "f:1: grammar-file: expected a path, found ''"},
      {std::string("prompt = a\0b", 12),
       "f:1: prompt: expected a text (TEXT), found a NUL character"},
      {"\xff = 1", "f:1: expected NAME = VALUE, found '\\xFF = 1'"},
  };
  for (const ConfigCase& c : cases) {
    OptionCollector collector(Cmd::kRun);
    try {
      ReadConfigText(c.text, "f", collector);
      ADD_FAILURE() << "accepted: " << c.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), c.expected);
    }
  }
}

TEST(OptionsConfig, ReadsEverySpellingOfALine) {
  OptionCollector collector(Cmd::kRun);
  ReadConfigText(
      "\xef\xbb\xbf# comment\r\n  temp=0.5\r\n\tc = 12 \nno-escape = on\nngl = 99\nn_predict = 5\n"
      "prompt = \" a\\n\\\"b\\\" \"\nsystem-prompt = say \"hi\" # no comment\nstop = A\nstop = "
      "B\nport = 1\n"
      "[ run ]\ntop_k = 3\n[serve]\nport = 2",
      "f", collector);
  const OptionValues& options = collector.parsed().options;
  EXPECT_EQ(options.Get<double>(Opt::kTemp), 0.5);
  EXPECT_EQ(options.Get<int64_t>(Opt::kContext), 12);
  EXPECT_FALSE(options.Get<bool>(Opt::kEscape));
  EXPECT_EQ(options.Get<int64_t>(Opt::kPredict), 5);
  EXPECT_EQ(options.Get<std::string>(Opt::kPrompt), " a\n\"b\" ");
  EXPECT_EQ(options.Get<std::string>(Opt::kSystemPrompt), "say \"hi\" # no comment");
  EXPECT_EQ(options.Get<std::vector<std::string>>(Opt::kReversePrompt),
            (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(options.Get<int64_t>(Opt::kTopK), 3);
  EXPECT_EQ(options.Get<int64_t>(Opt::kPort), 8080)
      << "a line for another command changes nothing here";
  EXPECT_EQ(collector.parsed().notices.size(), 1u);
}

TEST(OptionsConfig, RandomBytesAreRefusedOrRead) {
  uint64_t state = 1;
  const std::string_view pieces[] = {"[run]", "temp", " = ", "0.5",  "\n",   "\"", "\\",
                                     "#",     "]",    "[",   "\xff", "stop", "="};
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += pieces[(state >> 33) % std::size(pieces)];
    }
    OptionCollector collector(Cmd::kRun);
    try {
      ReadConfigText(text, "f", collector);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      EXPECT_EQ(std::string(error.what()).rfind("f:", 0), 0u) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace lockstep
