#include "apps/manual.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kHelpIndent = 32;

constexpr std::string_view kSources =
    "Every option can also be set by the environment variable LOCKSTEP_NAME (--ctx-size: "
    "LOCKSTEP_CTX_SIZE; where "
    "llama.cpp has a variable, that one is read too) and in the config file: lines NAME = VALUE, "
    "after a line [COMMAND] "
    "for that command only. The command line comes before the environment, the environment before "
    "the file.";

struct ExitRow {
  int code;
  std::string_view meaning;
};
constexpr ExitRow kExitCodes[] = {{0, "done"},
                                  {1, "failed while running"},
                                  {2, "wrong usage, or a file that is not acceptable"},
                                  {130, "interrupted"}};

bool HasEffect(const OptionRow& row) {
  return row.group != Group::kIgnored && row.group != Group::kRefused;
}

// "-c, --ctx-size N"
std::string Synopsis(const OptionRow& row) {
  return row.value.empty() ? Spellings(row) : fmt::format("{} {}", Spellings(row), row.value);
}

// What follows the help text in brackets: choices or range, default, variables of llama.cpp.
std::string Details(const OptionRow& row) {
  std::vector<std::string> parts;
  bool says_choices = row.kind == Kind::kOptional;
  if (!row.domain.empty() && !says_choices) {
    std::string expected = ExpectedValue(row);
    if (row.kind != Kind::kChoice) expected = std::string(row.domain);
    parts.push_back(std::move(expected));
  }
  bool plain_switch = row.kind == Kind::kSwitch && row.fallback == "off";
  if (!row.fallback.empty() && !plain_switch)
    parts.push_back(fmt::format("default {}", row.fallback));
  ForEachWord(row.environment,
              [&](std::string_view name) { parts.push_back(fmt::format("${}", name)); });
  if (parts.empty()) return "";
  return fmt::format(" [{}]", fmt::join(parts, "; "));
}

std::string HelpText(const OptionRow& row) { return fmt::format("{}{}", row.help, Details(row)); }

std::string OptionHelp(const OptionRow& row, int columns) {
  std::string line = fmt::format("  {}", Synopsis(row));
  // A short name, or none, leaves room for the text on the same line.
  if (static_cast<int>(line.size()) + 2 <= kHelpIndent) {
    line.resize(kHelpIndent, ' ');
    return line + WrapText(HelpText(row), columns, kHelpIndent, kHelpIndent);
  }
  return fmt::format("  {}{:{}}{}", WrapText(line.substr(2), columns, 6, 2), "", kHelpIndent,
                     WrapText(HelpText(row), columns, kHelpIndent, kHelpIndent));
}

// Options without effect are named in one paragraph; the manual page has the reasons.
std::string NamesOnly(const Command& command, Group group, int columns) {
  std::vector<std::string> names;
  for (const OptionRow& row : OptionTable()) {
    if (row.group == group && row.commands.Has(command.id)) names.push_back(Synopsis(row));
  }
  if (names.empty()) return "";
  return fmt::format("  {}", WrapText(fmt::format("{}", fmt::join(names, ", ")), columns, 2, 2));
}

std::string GroupHelp(const Command& command, Group group, int columns) {
  if (group == Group::kIgnored || group == Group::kRefused)
    return NamesOnly(command, group, columns);
  std::string text;
  for (const OptionRow& row : OptionTable()) {
    if (row.group == group && row.commands.Has(command.id)) text += OptionHelp(row, columns);
  }
  return text;
}

// Text as roff: no line of it is taken for a request, no character for a command.
std::string Roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '.' && (out.empty() || out.back() == '\n')) {
      out += "\\&.";
    } else {
      out += c;
    }
  }
  return out;
}

std::string CommandNames(const OptionRow& row, std::span<const Command> commands) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) {
    if (row.commands.Has(command.id)) names.push_back(CommandName(command.id));
  }
  if (names.size() == commands.size()) return "all commands";
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string OptionRoff(const OptionRow& row, std::span<const Command> commands) {
  std::string taken_by = CommandNames(row, commands);
  if (taken_by.empty()) return "";
  std::string variable = OwnVariable(row);
  std::string text = fmt::format(".TP\n\\fB{}\\fR", Roff(Spellings(row)));
  if (!row.value.empty()) text += fmt::format(" \\fI{}\\fR", Roff(row.value));
  text += fmt::format("\n{}", Roff(HelpText(row)));
  if (HasEffect(row) && !variable.empty()) text += fmt::format("\n${}.", Roff(variable));
  return text + fmt::format("\nTaken by {}.\n", Roff(taken_by));
}

}  // namespace

std::string VersionText() { return fmt::format("lockstep {}\n", LOCKSTEP_VERSION); }

std::string WrapText(std::string_view text, int columns, int indent, int start) {
  std::string out;
  size_t column = static_cast<size_t>(start);
  bool line_is_empty = true;
  ForEachWord(text, [&](std::string_view word) {
    if (!line_is_empty && column + 1 + word.size() > static_cast<size_t>(columns)) {
      out += '\n';
      out.append(static_cast<size_t>(indent), ' ');
      column = static_cast<size_t>(indent);
      line_is_empty = true;
    }
    if (!line_is_empty) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    line_is_empty = false;
  });
  return out + '\n';
}

std::string OverviewText(std::span<const Command> commands, int columns) {
  std::string text = VersionText() + "usage: lockstep COMMAND [options]\n\nCommands\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<14}", CommandName(command.id)) +
            WrapText(command.summary, columns, 16, 16);
  }
  text +=
      fmt::format("\n'lockstep help COMMAND' lists the options of a command.\n\n{}\nExit codes\n",
                  WrapText(kSources, columns, 0));
  for (const ExitRow& row : kExitCodes) text += fmt::format("  {:<4}{}\n", row.code, row.meaning);
  return text;
}

std::string CommandHelp(const Command& command, int columns) {
  std::string text = fmt::format("usage: lockstep {} {}", CommandName(command.id), command.usage);
  while (text.ends_with(' ')) text.pop_back();
  text = fmt::format("{}\n{}", WrapText(text, columns, 7),
                     WrapText(fmt::format("{}.", command.summary), columns, 0));
  if (!command.description.empty()) text += WrapText(command.description, columns, 0);
  for (size_t i = 0; i < kGroupTitles.size(); ++i) {
    std::string options = GroupHelp(command, static_cast<Group>(i), columns);
    if (!options.empty()) text += fmt::format("\n{}\n{}", kGroupTitles[i], options);
  }
  return text;
}

std::string ManPage(std::span<const Command> commands) {
  std::string text = fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\" \"User Commands\"\n"
      ".SH NAME\nlockstep \\- run GGUF language models on CPUs\n"
      ".SH SYNOPSIS\n.B lockstep\n.I COMMAND\n[options]\n.SH COMMANDS\n",
      LOCKSTEP_VERSION);
  for (const Command& command : commands) {
    text += fmt::format(".TP\n\\fB{}\\fR {}\n{}.\n", CommandName(command.id), Roff(command.usage),
                        Roff(command.summary));
    if (!command.description.empty()) text += Roff(command.description) + "\n";
  }
  text += fmt::format(".SH OPTIONS\n{}\n", Roff(kSources));
  for (size_t i = 0; i < kGroupTitles.size(); ++i) {
    std::string options;
    for (const OptionRow& row : OptionTable()) {
      if (row.group == static_cast<Group>(i)) options += OptionRoff(row, commands);
    }
    if (!options.empty()) text += fmt::format(".SS {}\n{}", kGroupTitles[i], options);
  }
  text +=
      ".SH FILES\n.TP\n\\fI$XDG_CONFIG_HOME/lockstep/config\\fR, "
      "\\fI~/.config/lockstep/config\\fR\nOptions.\n";
  text += ".SH EXIT STATUS\n";
  for (const ExitRow& row : kExitCodes)
    text += fmt::format(".TP\n.B {}\n{}\n", row.code, Roff(row.meaning));
  return text;
}

Error UnknownCommand(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) names.push_back(CommandName(command.id));
  std::string_view nearest = Nearest(name, names);
  if (nearest.empty())
    return Refused("unknown command '{}'; 'lockstep help' lists them", Printable(name));
  return Refused("unknown command '{}'; did you mean {}?", Printable(name), nearest);
}

}  // namespace lockstep
