#include "apps/manual.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/completions.h"
#include "apps/program_run.h"
#include "apps/terminal.h"

namespace lockstep {
namespace {

// Every command, also those that this build does not have, so that every row of the table is
// covered.
std::vector<Command> AllCommands() {
  std::vector<Command> commands;
  for (int i = 0; i < kCommandCount; ++i) {
    commands.push_back({static_cast<Cmd>(i), "does something", "-m FILE [options]",
                        "It is described here.", 0,
                        [](const OptionValues&, Positional) { return 0; }});
  }
  return commands;
}

std::vector<std::string> SpellingsOf(const OptionRow& row) {
  std::vector<std::string> words;
  ForEachWord(row.names, [&](std::string_view word) {
    words.emplace_back(word.starts_with('!') ? word.substr(1) : word);
  });
  return words;
}

void ExpectNoLineLongerThan(size_t columns, const std::string& text) {
  size_t start = 0;
  while (start < text.size()) {
    size_t end = text.find('\n', start);
    ASSERT_NE(end, std::string::npos) << "the last line has no end";
    EXPECT_LE(end - start, columns) << text.substr(start, end - start);
    start = end + 1;
  }
}

std::string WithoutBackslashes(std::string text) {
  std::erase(text, '\\');
  return text;
}

TEST(Manual, HelpOfEveryCommandFitsAndMentionsEveryOption) {
  for (const Command& command : AllCommands()) {
    std::string help = CommandHelp(command, 100);
    ExpectNoLineLongerThan(100, help);
    for (const OptionRow& row : OptionTable()) {
      for (const std::string& spelling : SpellingsOf(row)) {
        if (!row.commands.Has(command.id)) continue;
        bool mentioned = help.find(spelling + " ") != std::string::npos ||
                         help.find(spelling + ",") != std::string::npos ||
                         help.find(spelling + "\n") != std::string::npos;
        EXPECT_TRUE(mentioned) << CommandName(command.id) << " " << spelling;
      }
    }
  }
}

TEST(Manual, HelpFitsNarrowTerminals) {
  for (int columns : {80, 100}) {
    for (const Command& command : AllCommands())
      ExpectNoLineLongerThan(100, CommandHelp(command, columns));
    ExpectNoLineLongerThan(static_cast<size_t>(columns), OverviewText(AllCommands(), columns));
  }
}

TEST(Manual, OverviewListsEveryCommand) {
  std::string overview = OverviewText(Commands(), 100);
  for (const Command& command : Commands()) {
    EXPECT_NE(overview.find(fmt::format("\n  {} ", CommandName(command.id))), std::string::npos);
  }
}

TEST(Manual, ManPageMentionsEveryOption) {
  std::vector<Command> commands = AllCommands();
  std::string page = ManPage(commands);
  EXPECT_EQ(page.rfind(".TH LOCKSTEP 1", 0), 0u);
  std::string plain = WithoutBackslashes(page);
  for (const OptionRow& row : OptionTable()) {
    for (const std::string& spelling : SpellingsOf(row)) {
      EXPECT_NE(plain.find(spelling), std::string::npos) << spelling;
    }
    if (row.kind != Kind::kAction && row.id != Opt::kNone) {
      EXPECT_NE(plain.find(OwnVariable(row)), std::string::npos) << row.names;
    }
  }
  // A line of text that starts with a dot or quote would be taken for a request.
  size_t start = 0;
  while (start < page.size()) {
    size_t end = page.find('\n', start);
    std::string line = page.substr(start, end - start);
    EXPECT_FALSE(line.starts_with('\'')) << line;
    if (line.starts_with('.')) {
      EXPECT_TRUE(line.starts_with(".T") || line.starts_with(".S") || line.starts_with(".B") ||
                  line.starts_with(".I"))
          << line;
    }
    start = end + 1;
  }
}

TEST(Completions, EveryShellKnowsEveryOption) {
  std::vector<Command> commands = AllCommands();
  for (std::string_view shell : {"bash", "zsh", "fish"}) {
    std::string script = Completions(shell, commands);
    for (const OptionRow& row : OptionTable()) {
      if (row.group == Group::kRefused) continue;
      for (const std::string& spelling : SpellingsOf(row)) {
        std::string wanted = spelling;
        if (shell == "fish") {
          bool is_long = spelling.starts_with("--");
          wanted = is_long                ? " -l " + spelling.substr(2)
                   : spelling.size() == 2 ? " -s " + spelling.substr(1)
                                          : " -o " + spelling.substr(1);
        }
        EXPECT_NE(script.find(wanted), std::string::npos) << shell << " " << spelling;
      }
    }
    for (const Command& command : commands) {
      EXPECT_NE(script.find(CommandName(command.id)), std::string::npos) << shell;
    }
  }
  EXPECT_THROW(Completions("tcsh", commands), Error);
  EXPECT_THROW(Completions("", commands), Error);
}

TEST(Completions, BashCompletesCommandsOptionsAndChoices) {
  if (std::system("bash -c 'exit 0' 2>/dev/null") != 0) GTEST_SKIP() << "bash is not installed";
  std::string path = ::testing::TempDir() + "lockstep_completions.bash";
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::string script = Completions("bash", AllCommands());
  std::fwrite(script.data(), 1, script.size(), file);
  std::fclose(file);
  struct Case {
    std::string line;
    std::string expected;
  };
  const Case cases[] = {
      {"lockstep ser", "serve"},         {"lockstep run --temperat", "--temperature"},
      {"lockstep run -ctk q8", "q8_0"},  {"lockstep run --cache-type-k bf", "bf16"},
      {"lockstep run -fa of", "off"},    {"lockstep completions z", "zsh"},
      {"lockstep help tok", "tokenize"},
  };
  for (const Case& c : cases) {
    std::string command = fmt::format(
        "bash -c 'source {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _lockstep; "
        "echo \"${{COMPREPLY[*]}}\"'",
        path, c.line);
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char buffer[256] = {};
    size_t size = std::fread(buffer, 1, sizeof(buffer) - 1, pipe);
    EXPECT_EQ(pclose(pipe), 0) << c.line;
    EXPECT_EQ(std::string(buffer, size), c.expected + "\n") << c.line;
  }
  std::remove(path.c_str());
}

TEST(Manual, WrapTextKeepsEveryWord) {
  EXPECT_EQ(WrapText("aa bb cc", 5, 2), "aa bb\n  cc\n");
  EXPECT_EQ(WrapText("", 5, 2), "\n");
  EXPECT_EQ(WrapText("averylongword b", 5, 0), "averylongword\nb\n");
  EXPECT_EQ(WrapText("a b", 4, 0, 3), "a\nb\n");
}

TEST(Program, ExitCodesAndMessagesFollowTheManual) {
  struct Case {
    std::string arguments;
    int code;
    std::string output;
  };
  const Case cases[] = {
      {"version", 0, VersionText()},
      {"--version", 0, VersionText()},
      {"help --version", 0, VersionText()},
      {"2>&1", 2, "lockstep: expected a command; 'lockstep help' lists them\n"},
      {"'' 2>&1", 2, "lockstep: unknown command ''; 'lockstep help' lists them\n"},
      {"hlep 2>&1", 2, "lockstep: unknown command 'hlep'; did you mean help?\n"},
      {"--temp 1 2>&1", 2,
       "lockstep: expected a command before --temp; 'lockstep help' lists them\n"},
      {"version x 2>&1", 2, "lockstep: version: expected options only, found 'x' too\n"},
      {"version --log-file /no/such/folder/x 2>&1", 2,
       "lockstep: --log-file: /no/such/folder/x: No such file or directory\n"},
      {"completions 2>&1", 2, "lockstep: completions: expected a shell: bash, zsh or fish\n"},
      {"man 2>&1 >/dev/full", 1, "lockstep: writing to stdout: No space left on device\n"},
      {"man 2>&1 >&-", 1, "lockstep: writing to stdout: Bad file descriptor\n"},
      {"man 2>&1 | true", 0, ""},
      {"version --log-colors 2>&1 >/dev/null", 0,
       "lockstep: --log-colors has no effect: messages have no colours\n"},
      {"version --log-colors -q 2>&1 >/dev/null", 0, ""},
      {"version <&- 2>&-", 0, VersionText()},
  };
  for (const Case& c : cases) {
    const ShellRun outcome = RunShell(fmt::format("{} {}", LOCKSTEP_PROGRAM, c.arguments));
    EXPECT_EQ(outcome.code, c.code) << c.arguments;
    EXPECT_EQ(outcome.output, c.output) << c.arguments;
  }
}

TEST(Program, ReaderThatGoesAwayIsNoFailure) {
  std::string status = fmt::format(
      "{0} version >/dev/null; bash -c 'env HOME=/no/such/folder {0} man 2>&1 | true; echo "
      "${{PIPESTATUS[0]}}'",
      LOCKSTEP_PROGRAM);
  EXPECT_EQ(RunShell(status).output, "0\n");
}

}  // namespace
}  // namespace lockstep
