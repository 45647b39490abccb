// Command line and environment.
#include <algorithm>

#include "apps/options.h"
#include "base/file.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr std::string_view kNoFile = "none";

// One option of the command line, before its value is read.
struct Argument {
  OptionMatch match;
  std::string spelling;
  std::optional<std::string_view> text;
};

struct Arguments {
  std::vector<Argument> options;
  std::vector<std::string_view> positional;
};

bool IsOptionLike(std::string_view argument) { return argument.size() > 1 && argument[0] == '-'; }

// Whether the option takes the argument after it.
bool TakesNext(const OptionRow& row, std::optional<std::string_view> next) {
  if (row.kind == Kind::kAction || row.kind == Kind::kSwitch) return false;
  if (row.kind == Kind::kOptional) return next && IsChoice(row, *next);
  return true;
}

// Splits the arguments into options with their texts and the rest.
Arguments SplitArguments(Cmd command, std::span<const std::string_view> arguments) {
  Arguments split;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (argument == "--") {
      split.positional.insert(split.positional.end(),
                              arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!IsOptionLike(argument)) {
      split.positional.push_back(argument);
      continue;
    }
    size_t equals = argument.find('=');
    std::string_view name = argument.substr(0, equals);
    OptionMatch match = FindOption(name, command);
    if (match.row == nullptr) throw UnknownOption(CommandName(command), name, command);
    Argument option{match, std::string(name), std::nullopt};
    std::optional<std::string_view> next;
    if (i + 1 < arguments.size()) next = arguments[i + 1];
    if (equals != std::string_view::npos) {
      option.text = argument.substr(equals + 1);
    } else if (TakesNext(*match.row, next)) {
      if (!next) throw Refused("{}: expected {} after it, found the end", name, match.row->value);
      if (IsOptionLike(*next) && FindOption(*next, command).row != nullptr) {
        throw Refused(
            "{}: expected {} after it, found the option {}; write {}={} to pass it as a value",
            name, match.row->value, *next, name, *next);
      }
      option.text = *next;
      ++i;
    }
    split.options.push_back(std::move(option));
  }
  return split;
}

std::optional<std::string> Variable(const Environment& environment, const std::string& name) {
  std::optional<std::string> value = environment(name);
  // An empty variable is how scripts say "not set".
  if (value && value->empty()) return std::nullopt;
  return value;
}

// The first variable of a row that is set: its own name, then the others; for a switch
// LLAMA_ARG_NO_X after each X.
void ReadVariables(const OptionRow& row, const Environment& environment,
                   OptionCollector& collector) {
  std::string own = OwnVariable(row);
  if (own.empty()) return;
  bool done = false;
  auto read = [&](const std::string& name, bool negated) {
    if (done) return;
    std::optional<std::string> value = Variable(environment, name);
    if (!value) return;
    collector.SetText({&row, negated}, *value, name, Source::kEnvironment);
    done = true;
  };
  read(own, false);
  ForEachWord(row.environment, [&](std::string_view name) {
    read(std::string(name), false);
    constexpr std::string_view kPrefix = "LLAMA_ARG_";
    if (row.kind == Kind::kSwitch && name.starts_with(kPrefix)) {
      read(fmt::format("{}NO_{}", kPrefix, name.substr(kPrefix.size())), true);
    }
  });
}

void ReadEnvironment(const Environment& environment, OptionCollector& collector) {
  for (const OptionRow& row : OptionTable()) {
    if (row.commands.Has(collector.command())) ReadVariables(row, environment, collector);
  }
}

// $XDG_CONFIG_HOME/lockstep/config, or ~/.config/lockstep/config (XDG Base Directory Specification
// 0.8: a relative path counts as unset). Empty where neither variable is set.
std::string DefaultConfigPath(const Environment& environment) {
  std::string folder = Variable(environment, "XDG_CONFIG_HOME").value_or("");
  if (folder.starts_with('/')) return folder + "/lockstep/config";
  std::string home = Variable(environment, "HOME").value_or("");
  return home.empty() ? "" : home + "/.config/lockstep/config";
}

void ReadConfig(const Arguments& split, const Environment& environment,
                OptionCollector& collector) {
  std::optional<std::string> path = Variable(environment, OwnVariable(RowOf(Opt::kConfig)));
  for (const Argument& option : split.options) {
    if (option.match.row->id == Opt::kConfig && option.text) path = std::string(*option.text);
  }
  if (path == kNoFile) return;
  bool named = path.has_value();
  if (!named) path = DefaultConfigPath(environment);
  if (path->empty() && !named) return;
  std::string text;
  try {
    text = ReadFile(*path, kMaxConfigBytes);
  } catch (const Error& error) {
    // Nobody has to have the default file; one that was named must be there.
    if (!named) return;
    throw Refused("--config: {}", error.what());
  }
  ReadConfigText(text, *path, collector);
}

bool AsksForHelp(const Arguments& split) {
  return std::any_of(split.options.begin(), split.options.end(), [](const Argument& option) {
    return option.match.row->kind == Kind::kAction;
  });
}

}  // namespace

void OptionCollector::SetText(OptionMatch match, std::string_view text, std::string_view where,
                              Source source) {
  OptionValue value = ParseValue(*match.row, text, where);
  if (match.negated) value = !std::get<bool>(value);
  Store(*match.row, std::move(value), where, source);
}

void OptionCollector::SetBare(OptionMatch match, std::string_view where, Source source) {
  const OptionRow& row = *match.row;
  switch (row.kind) {
    case Kind::kAction:
    case Kind::kSwitch:
      return Store(row, !match.negated, where, source);
    case Kind::kOptional:
      return SetText(match, row.domain.substr(0, row.domain.find('|')), where, source);
    default:
      throw Refused("{}: expected {}, found nothing", where, ExpectedValue(row));
  }
}

void OptionCollector::Store(const OptionRow& row, OptionValue value, std::string_view where,
                            Source source) {
  // Turning off what is not there anyway is fine.
  if (row.group == Group::kRefused && row.kind == Kind::kSwitch && !std::get<bool>(value)) return;
  if (row.group == Group::kRefused) throw Refused("{}: not supported: {}", where, row.help);
  if (row.group == Group::kIgnored) {
    std::string notice = fmt::format("{} has no effect: {}", where, row.help);
    std::vector<std::string>& notices = parsed_.notices;
    if (std::find(notices.begin(), notices.end(), notice) == notices.end())
      notices.push_back(std::move(notice));
    return;
  }
  OptionValues& options = parsed_.options;
  bool gathers = options.source(row.id) == source;
  if (row.kind == Kind::kIntegers && gathers) {
    auto all = options.Get<std::vector<int64_t>>(row.id);
    const auto& more = std::get<std::vector<int64_t>>(value);
    all.insert(all.end(), more.begin(), more.end());
    value = std::move(all);
  } else if (row.kind == Kind::kTexts && gathers) {
    auto all = options.Get<std::vector<std::string>>(row.id);
    all.push_back(std::get<std::vector<std::string>>(value)[0]);
    value = std::move(all);
  }
  options.Set(row.id, std::move(value), source);
}

ParsedCommand ParseOptions(Cmd command, std::span<const std::string_view> arguments,
                           const Environment& environment) {
  Arguments split = SplitArguments(command, arguments);
  OptionCollector collector(command);
  if (!AsksForHelp(split)) {
    ReadConfig(split, environment, collector);
    ReadEnvironment(environment, collector);
  }
  for (const Argument& option : split.options) {
    if (option.text) {
      collector.SetText(option.match, *option.text, option.spelling, Source::kCommandLine);
    } else {
      collector.SetBare(option.match, option.spelling, Source::kCommandLine);
    }
  }
  for (std::string_view text : split.positional) collector.AddPositional(text);
  return std::move(collector.parsed());
}

}  // namespace lockstep
