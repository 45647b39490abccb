#include "apps/completions.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

std::vector<std::string> SpellingWords(const OptionRow& row) {
  std::vector<std::string> words;
  std::string list = Spellings(row);
  std::erase(list, ',');
  ForEachWord(list, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// What may stand after an option, separated by blanks; empty where anything may.
std::string Choices(const OptionRow& row) {
  std::vector<std::string_view> names;
  if (row.kind == Kind::kChoice || row.kind == Kind::kOptional) {
    ForEachChoice(row.domain, [&](const ChoiceRow& choice) {
      if (choice.spelling == choice.canonical) names.push_back(choice.spelling);
    });
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// What may stand after a command, separated by blanks; empty where files may.
std::string Arguments(Cmd command, std::span<const Command> commands) {
  if (command == Cmd::kCompletions) return "bash zsh fish";
  if (command != Cmd::kHelp) return "";
  std::vector<std::string_view> names;
  for (const Command& row : commands) names.push_back(CommandName(row.id));
  return fmt::format("{}", fmt::join(names, " "));
}

std::string CommandNames(std::span<const Command> commands) {
  return Arguments(Cmd::kHelp, commands);
}

template <typename Visitor>
void ForEachOption(Cmd command, const Visitor& visit) {
  for (const OptionRow& row : OptionTable()) {
    if (row.commands.Has(command) && row.group != Group::kRefused) visit(row);
  }
}

// `text` inside single quotes, for shells that end a quoted text to escape a quote (bash, zsh).
std::string ShellQuoted(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out;
}

std::string BashCommand(const Command& command, std::span<const Command> commands) {
  std::string cases;
  std::vector<std::string> words;
  ForEachOption(command.id, [&](const OptionRow& row) {
    std::vector<std::string> spellings = SpellingWords(row);
    words.insert(words.end(), spellings.begin(), spellings.end());
    if (row.value.empty()) return;
    std::string choices = Choices(row);
    std::string action = row.kind == Kind::kFile ? "_lockstep_files"
                         : choices.empty()       ? "COMPREPLY=()"
                                                 : fmt::format("_lockstep_words '{}'", choices);
    // The word after an optional value may be an option.
    action = row.kind == Kind::kOptional
                 ? fmt::format("if [[ $cur != -* ]]; then {}; return; fi", action)
                 : fmt::format("{}; return", action);
    cases += fmt::format("        {}) {} ;;\n", fmt::join(spellings, "|"), action);
  });
  std::string arguments = Arguments(command.id, commands);
  return fmt::format(
      "    {})\n      case \"$prev\" in\n{}      esac\n"
      "      if [[ $cur == -* ]]; then _lockstep_words '{}'; else {}; fi ;;\n",
      CommandName(command.id), cases, fmt::join(words, " "),
      arguments.empty() ? "_lockstep_files" : fmt::format("_lockstep_words '{}'", arguments));
}

std::string Bash(std::span<const Command> commands) {
  std::string text = fmt::format(
      "# bash completion for lockstep\n"
      "_lockstep_words() {{ mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -W \"$1\" -- "
      "\"$cur\"); }}\n"
      "_lockstep_files() {{ compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "
      "\"$cur\"); }}\n"
      "_lockstep() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then _lockstep_words '{} --help --version'; return; fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n",
      CommandNames(commands));
  for (const Command& command : commands) text += BashCommand(command, commands);
  return text + "  esac\n}\ncomplete -F _lockstep lockstep\n";
}

// A specification of zsh's _arguments for one option.
std::string ZshOption(const OptionRow& row) {
  std::vector<std::string> spellings = SpellingWords(row);
  std::string help;
  for (char c : ShellQuoted(row.help)) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') help += '\\';
    help += c;
  }
  std::string value;
  if (!row.value.empty()) {
    std::string choices = Choices(row);
    value = fmt::format("{}:{}:{}", row.kind == Kind::kOptional ? ":" : "", LongName(row),
                        row.kind == Kind::kFile ? "_files"
                        : choices.empty()       ? " "
                                                : fmt::format("({})", choices));
  }
  std::string text;
  for (const std::string& spelling : spellings) {
    text += fmt::format("        '({}){}[{}]{}' \\\n", fmt::join(spellings, " "), spelling, help,
                        value);
  }
  return text;
}

std::string Zsh(std::span<const Command> commands) {
  std::string text = fmt::format(
      "#compdef lockstep\n"
      "_lockstep() {{\n"
      "  local context state state_descr line\n"
      "  typeset -A opt_args\n"
      "  _arguments -C '1:command:({})' '*::argument:->arguments'\n"
      "  [[ $state == arguments ]] || return\n"
      "  case $words[1] in\n",
      CommandNames(commands));
  for (const Command& command : commands) {
    text += fmt::format("    {})\n      _arguments \\\n", CommandName(command.id));
    ForEachOption(command.id, [&](const OptionRow& row) { text += ZshOption(row); });
    std::string arguments = Arguments(command.id, commands);
    text += fmt::format("        '*:argument:{}' ;;\n",
                        arguments.empty() ? "_files" : fmt::format("({})", arguments));
  }
  return text + "  esac\n}\ncompdef _lockstep lockstep\n";
}

std::string FishQuoted(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string FishOption(const OptionRow& row, Cmd command) {
  std::string text =
      fmt::format("complete -c lockstep -n '__fish_seen_subcommand_from {}'", CommandName(command));
  for (const std::string& spelling : SpellingWords(row)) {
    if (spelling.starts_with("--")) {
      text += fmt::format(" -l {}", spelling.substr(2));
    } else {
      text += fmt::format(" -{} {}", spelling.size() == 2 ? 's' : 'o', spelling.substr(1));
    }
  }
  std::string choices = Choices(row);
  if (row.kind == Kind::kFile) {
    text += " -r -F";
  } else if (!choices.empty()) {
    text += fmt::format(" {} -a '{}'", row.kind == Kind::kOptional ? "-f" : "-x", choices);
  } else if (!row.value.empty()) {
    text += " -x";
  }
  return text + fmt::format(" -d '{}'\n", FishQuoted(row.help));
}

std::string Fish(std::span<const Command> commands) {
  std::string text = "# fish completion for lockstep\n";
  for (const Command& command : commands) {
    text += fmt::format("complete -c lockstep -n __fish_use_subcommand -f -a {} -d '{}'\n",
                        CommandName(command.id), FishQuoted(command.summary));
  }
  for (const Command& command : commands) {
    std::string arguments = Arguments(command.id, commands);
    if (!arguments.empty()) {
      text += fmt::format("complete -c lockstep -n '__fish_seen_subcommand_from {}' -f -a '{}'\n",
                          CommandName(command.id), arguments);
    }
    ForEachOption(command.id, [&](const OptionRow& row) { text += FishOption(row, command.id); });
  }
  return text;
}

struct ShellRow {
  std::string_view name;
  std::string (*write)(std::span<const Command>);
};
constexpr ShellRow kShells[] = {{"bash", Bash}, {"zsh", Zsh}, {"fish", Fish}};

}  // namespace

std::string Completions(std::string_view shell, std::span<const Command> commands) {
  for (const ShellRow& row : kShells) {
    if (row.name == shell) return row.write(commands);
  }
  throw Refused("completions: expected bash, zsh or fish, found '{}'", Printable(shell));
}

}  // namespace lockstep
