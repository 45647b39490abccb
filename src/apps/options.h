// Typed option values, and how they are read: command line > environment > config file > default.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apps/options_table.h"
#include "base/error.h"

namespace lockstep {

// The alternatives are those that Kind names.
using OptionValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

// Where a value came from; later ones win.
enum class Source : uint8_t { kDefault, kConfig, kConfigSection, kEnvironment, kCommandLine };

// The values of all options for one run of one command. Options that the command does not take have
// their default.
class OptionValues {
 public:
  explicit OptionValues(Cmd command);

  Cmd command() const { return command_; }
  // Whether there is a value, given or default.
  bool Has(Opt option) const { return entry(option).value.index() != 0; }
  // Whether the user gave the value.
  bool Given(Opt option) const { return entry(option).source != Source::kDefault; }
  Source source(Opt option) const { return entry(option).source; }

  // The value of an option whose row has a default, or for which Has() is true. T is the type that
  // the row's Kind names; another one is a bug of the caller.
  template <typename T>
  const T& Get(Opt option) const {
    const T* value = std::get_if<T>(&entry(option).value);
    LOCKSTEP_CHECK(value != nullptr, "option {}", LongName(RowOf(option)));
    return *value;
  }
  // The value, or `otherwise` where there is none.
  template <typename T>
  T GetOr(Opt option, T otherwise) const {
    return Has(option) ? Get<T>(option) : otherwise;
  }
  // The value of an option that the command cannot do without; Refused where there is none.
  template <typename T>
  const T& Require(Opt option) const {
    if (!Has(option)) throw MissingOption(option);
    return Get<T>(option);
  }
  // The value of a kChoice or kOptional option as an enum whose enumerators have the order of the
  // row's choices.
  template <typename E>
  E Choice(Opt option) const {
    return static_cast<E>(ChoiceIndex(option));
  }

  void Set(Opt option, OptionValue value, Source source);

 private:
  struct Entry {
    OptionValue value;
    Source source = Source::kDefault;
  };
  const Entry& entry(Opt option) const { return entries_[static_cast<size_t>(option)]; }
  Error MissingOption(Opt option) const;
  int ChoiceIndex(Opt option) const;

  Cmd command_;
  std::array<Entry, kOptionCount> entries_;
};

// Looks an environment variable up; nothing where it is unset.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment ProcessEnvironment();

struct ParsedCommand {
  OptionValues options;
  std::vector<std::string> positional;
  // One line for each option that was accepted without effect.
  std::vector<std::string> notices;
};

// Reads the arguments after the command's name, the environment and the config file. `--` ends the
// options; `-` alone is positional. A list option takes the values of the highest source only. With
// --help or --version nothing but the command line is read. Throws Refused for anything that is not
// acceptable, naming option, expected and found.
ParsedCommand ParseOptions(Cmd command, std::span<const std::string_view> arguments,
                           const Environment& environment);

// The parts of ParseOptions, each in a file of its own.

struct OptionMatch {
  const OptionRow* row = nullptr;
  bool negated = false;
};
// The row of `command` (nullopt: of any command) with the spelling `name`, dashes included; `_`
// counts as `-` in long names. row is null where there is none.
OptionMatch FindOption(std::string_view name, std::optional<Cmd> command);

// "'--tmep'; did you mean --temp?" or, where only other commands know it, "... is an option of run,
// chat": the error for a spelling that `command` does not take. `where` starts the line.
Error UnknownOption(std::string_view where, std::string_view name, Cmd command);

// The candidate nearest to `name` by edit distance; empty where none is near.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);

// What a value must look like: "an integer from 0 to 5", "one of f16, f32".
std::string ExpectedValue(const OptionRow& row);

// Reads a value; throws Refused("{where}: expected ..., found ...").
OptionValue ParseValue(const OptionRow& row, std::string_view text, std::string_view where);

// Whether `text` is one of the spellings of a choice.
bool IsChoice(const OptionRow& row, std::string_view text);

// Collects values from several sources, lowest first.
class OptionCollector {
 public:
  explicit OptionCollector(Cmd command) : parsed_{OptionValues(command), {}, {}} {}

  Cmd command() const { return parsed_.options.command(); }
  // Sets an option from text. `where` names the place: "--temp", "LLAMA_ARG_TEMP", "config:3:
  // temp".
  void SetText(OptionMatch match, std::string_view text, std::string_view where, Source source);
  // Sets an option that came without a value.
  void SetBare(OptionMatch match, std::string_view where, Source source);
  void AddPositional(std::string_view text) { parsed_.positional.emplace_back(text); }
  ParsedCommand& parsed() { return parsed_; }

 private:
  void Store(const OptionRow& row, OptionValue value, std::string_view where, Source source);
  ParsedCommand parsed_;
};

// Reads `name = value` lines and [command] sections; lines before the first section are for every
// command that takes the option. '#' and ';' start comment lines; a value may stand in double
// quotes, in which \n \t \" \\ are read. All lines are checked, also those of other commands.
// `path` is for messages.
void ReadConfigText(std::string_view text, std::string_view path, OptionCollector& collector);

}  // namespace lockstep
