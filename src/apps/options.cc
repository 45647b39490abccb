#include "apps/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace lockstep {

std::string_view LongName(const OptionRow& row) {
  std::string_view name;
  ForEachWord(row.names, [&](std::string_view word) {
    if (name.empty() && word.starts_with("--")) name = word.substr(2);
  });
  return name;
}

std::string Spellings(const OptionRow& row) {
  std::vector<std::string> words;
  ForEachWord(row.names, [&](std::string_view word) {
    words.emplace_back(word.starts_with('!') ? word.substr(1) : word);
  });
  if (row.kind == Kind::kSwitch && row.fallback == "on")
    words.push_back(fmt::format("--no-{}", LongName(row)));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string OwnVariable(const OptionRow& row) {
  if (row.kind == Kind::kAction) return "";
  std::string name = "LOCKSTEP_";
  for (char c : LongName(row))
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

OptionValues::OptionValues(Cmd command) : command_(command) {
  for (const OptionRow& row : OptionTable()) {
    if (row.id == Opt::kNone) continue;
    OptionValue& value = entries_[static_cast<size_t>(row.id)].value;
    if (row.kind == Kind::kAction) value = false;
    if (row.kind == Kind::kTexts) value = std::vector<std::string>();
    if (!row.fallback.empty()) value = ParseValue(row, row.fallback, LongName(row));
  }
}

void OptionValues::Set(Opt option, OptionValue value, Source source) {
  entries_[static_cast<size_t>(option)] = {std::move(value), source};
}

Error OptionValues::MissingOption(Opt option) const {
  const OptionRow& row = RowOf(option);
  return Refused("{}: expected {} {}, found none", CommandName(command_), Spellings(row),
                 row.value);
}

int OptionValues::ChoiceIndex(Opt option) const {
  const std::string& value = Get<std::string>(option);
  int index = 0;
  int found = -1;
  ForEachChoice(RowOf(option).domain, [&](const ChoiceRow& choice) {
    if (choice.spelling != choice.canonical) return;
    if (choice.spelling == value) found = index;
    ++index;
  });
  LOCKSTEP_CHECK(found >= 0, "option {} is {}", LongName(RowOf(option)), value);
  return found;
}

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

namespace {

// `_` for `-` in the name part of a long option, as llama.cpp allows.
std::string NormalName(std::string_view name) {
  std::string normal(name);
  if (normal.starts_with("--")) std::replace(normal.begin(), normal.end(), '_', '-');
  return normal;
}

// Longer names than this are nobody's typing error.
constexpr size_t kMaxNameBytes = 64;

// Edit distance in which swapping two neighbours is one edit (optimal string alignment; Damerau
// 1964).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> previous(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, substituted});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

OptionMatch FindOption(std::string_view name, std::optional<Cmd> command) {
  if (name.size() > kMaxNameBytes) return {};
  const std::string wanted = NormalName(name);
  OptionMatch negated;
  for (const OptionRow& row : OptionTable()) {
    if (command && !row.commands.Has(*command)) continue;
    OptionMatch match;
    ForEachWord(row.names, [&](std::string_view word) {
      bool negative = word.starts_with('!');
      std::string_view spelling = negative ? word.substr(1) : word;
      if (spelling == wanted) match = {&row, negative};
      if (row.kind == Kind::kSwitch && !negative && spelling.starts_with("--") &&
          wanted.starts_with("--no-") && wanted.substr(5) == spelling.substr(2)) {
        negated = {&row, true};
      }
    });
    if (match.row != nullptr) return match;
  }
  // A row of its own ("--no-host") comes before the negation of another ("--host").
  return negated;
}

std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.empty() || name.size() > kMaxNameBytes) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    size_t distance = EditDistance(name, candidate);
    // A name that was cut short ("--temper") is nearer than its length says.
    if (name.size() >= 4 && candidate.starts_with(name)) distance = 1;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Error UnknownOption(std::string_view where, std::string_view name, Cmd command) {
  if (const OptionRow* row = FindOption(name, std::nullopt).row) {
    std::vector<std::string_view> takers;
    for (int i = 0; i < kCommandCount; ++i) {
      if (FindOption(name, static_cast<Cmd>(i)).row != nullptr)
        takers.push_back(kCommandNames[static_cast<size_t>(i)]);
    }
    return Refused("{}: {} is no option of {} but of {}", where,
                   LongName(*row).empty() ? name : Printable(name), CommandName(command),
                   fmt::join(takers, ", "));
  }
  std::vector<std::string_view> spellings;
  for (const OptionRow& row : OptionTable()) {
    if (!row.commands.Has(command)) continue;
    ForEachWord(row.names, [&](std::string_view word) {
      if (!word.starts_with('!')) spellings.push_back(word);
    });
  }
  std::string_view nearest = Nearest(NormalName(name), spellings);
  if (nearest.empty()) {
    return Refused("{}: unknown option {}; 'lockstep help {}' lists the options", where,
                   Printable(name), CommandName(command));
  }
  return Refused("{}: unknown option {}; did you mean {}?", where, Printable(name), nearest);
}

}  // namespace lockstep
