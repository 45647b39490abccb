// The config file.
#include <algorithm>

#include "apps/options.h"

namespace lockstep {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\f\v";
  size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The text of a value: as it stands, or what double quotes enclose.
std::string Unquote(std::string_view text, std::string_view where) {
  if (!text.starts_with('"')) return std::string(text);
  std::string value;
  size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    constexpr std::string_view kLetters = "nt\"\\";
    constexpr std::string_view kMeanings = "\n\t\"\\";
    size_t index = i + 1 < text.size() ? kLetters.find(text[i + 1]) : std::string_view::npos;
    if (index == std::string_view::npos) {
      throw Refused("{}: expected \\n, \\t, \\\" or \\\\ in quotes, found '{}'", where,
                    Printable(text.substr(i, 2)));
    }
    value += kMeanings[index];
    ++i;
  }
  if (i + 1 != text.size())
    throw Refused("{}: expected a closing quote at the end of the line", where);
  return value;
}

std::optional<Cmd> ParseSection(std::string_view line, std::string_view where) {
  if (!line.ends_with(']'))
    throw Refused("{}: expected [command], found '{}'", where, Printable(line));
  std::string_view name = Trim(line.substr(1, line.size() - 2));
  auto found = std::find(kCommandNames.begin(), kCommandNames.end(), name);
  if (found == kCommandNames.end()) {
    std::string_view nearest = Nearest(name, kCommandNames);
    throw Refused("{}: unknown command {}{}{}", where, Printable(name),
                  nearest.empty() ? "" : "; did you mean ", nearest);
  }
  return static_cast<Cmd>(found - kCommandNames.begin());
}

// Finds an option by its name without dashes; short names ("ngl") too.
OptionMatch FindByName(std::string_view name, std::optional<Cmd> command) {
  OptionMatch match = FindOption(fmt::format("--{}", name), command);
  return match.row != nullptr ? match : FindOption(fmt::format("-{}", name), command);
}

bool IsName(std::string_view name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

void ReadAssignment(std::string_view line, std::string_view where, std::optional<Cmd> section,
                    OptionCollector& collector) {
  size_t equals = line.find('=');
  std::string_view name = Trim(line.substr(0, equals));
  if (equals == std::string_view::npos || !IsName(name)) {
    throw Refused("{}: expected NAME = VALUE, found '{}'", where, Printable(line));
  }
  std::string full = fmt::format("{}: {}", where, name);
  std::string value = Unquote(Trim(line.substr(equals + 1)), full);

  // A line for this command is read by this command's row, since a name may mean something else to
  // another.
  Cmd command = section.value_or(collector.command());
  OptionMatch match = FindByName(name, command);
  if (match.row == nullptr && !section) match = FindByName(name, std::nullopt);
  if (match.row == nullptr) throw UnknownOption(where, fmt::format("--{}", name), command);
  if (match.row->kind == Kind::kAction || match.row->id == Opt::kConfig) {
    throw Refused("{}: expected an option that a file can set", full);
  }
  bool mine = command == collector.command() && match.row->commands.Has(command);
  if (mine) {
    collector.SetText(match, value, full, section ? Source::kConfigSection : Source::kConfig);
  } else {
    ParseValue(*match.row, value, full);
  }
}

}  // namespace

void ReadConfigText(std::string_view text, std::string_view path, OptionCollector& collector) {
  // Two passes: what a command's own section says comes after what is said for all, wherever it
  // stands.
  for (bool sections : {false, true}) {
    std::optional<Cmd> section;
    std::string_view rest = text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
    for (int number = 1; !rest.empty(); ++number) {
      size_t end = rest.find('\n');
      std::string_view line = Trim(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (line.empty() || line[0] == '#' || line[0] == ';') continue;
      std::string where = fmt::format("{}:{}", Printable(path, 4096), number);
      if (line[0] == '[') {
        section = ParseSection(line, where);
      } else if (section.has_value() == sections) {
        ReadAssignment(line, where, section, collector);
      }
    }
  }
}

}  // namespace lockstep
