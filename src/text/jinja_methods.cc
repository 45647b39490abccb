// Methods of strings, dicts, lists and tuples that do not change their object, as in Python.
#include <algorithm>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

using Parts = std::vector<std::string_view>;

Value TextList(const Parts& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.emplace_back(part);
  return Value::MakeList(std::move(items));
}

// ---- strip and split

template <Side kSide>
Value StripMethod(Call& call) {
  if (!call.Given(0)) return Strip(call.self.text(), kSide);
  return StripChars(call.self.text(), call.Text(0), kSide);
}

template <Parts (*kSplitAt)(std::string_view, std::string_view, int64_t),
          Parts (*kSplitBlanks)(std::string_view, int64_t)>
Value SplitMethod(Call& call) {
  const std::string& text = call.self.text();
  int64_t max_splits = call.Integer(1, -1);
  if (!call.Given(0)) return TextList(kSplitBlanks(text, max_splits));
  const std::string& separator = call.Text(0);
  if (separator.empty()) throw Fault("empty separator");
  Budget::Spend((text.size() / 64) * (kSplitAt == SplitFromRight ? separator.size() : 1));
  return TextList(kSplitAt(text, separator, max_splits));
}

template <bool kFromRight>
Value PartitionMethod(Call& call) {
  std::string_view text = call.self.text();
  const std::string& separator = call.Text(0);
  if (separator.empty()) throw Fault("empty separator");
  Budget::Spend((text.size() / 64) * (kFromRight ? separator.size() : 1));
  size_t at = kFromRight ? text.rfind(separator) : Find(text, separator, 0);
  if (at != std::string_view::npos) {
    return Value::Tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
  }
  return kFromRight ? Value::Tuple({"", "", text}) : Value::Tuple({text, "", ""});
}

// ---- search

// The part of the object between the code points that the two arguments from `first` on name, and
// its byte offset.
struct Window {
  std::string_view text;
  size_t offset;
  bool valid;  // false where start lies behind the end
};
Window WindowOf(const Call& call, size_t first) {
  std::string_view text = call.self.text();
  int64_t size = static_cast<int64_t>(*Length(call.self));
  auto place = [&](size_t i, int64_t fallback) {
    int64_t at = call.Given(i) ? call.Integer(i, fallback) : fallback;
    return at < 0 ? std::max<int64_t>(0, at + size) : at;
  };
  int64_t start = place(first, 0);
  int64_t stop = std::min(size, place(first + 1, size));
  if (start > stop) return {"", 0, false};
  size_t begin = OffsetOf(text, start);
  return {text.substr(begin, OffsetOf(text, stop) - begin), begin, true};
}

// The code point index of the first or last occurrence; nullopt where there is none.
std::optional<size_t> Search(const Call& call, bool from_right) {
  const std::string& needle = call.Text(0);
  Window window = WindowOf(call, 1);
  Budget::Spend((call.self.text().size() / 64) * (from_right ? needle.size() : 1));
  if (!window.valid) return std::nullopt;
  size_t at = from_right ? window.text.rfind(needle) : Find(window.text, needle, 0);
  if (at == std::string_view::npos) return std::nullopt;
  return CountCodePoints(std::string_view(call.self.text()).substr(0, window.offset + at));
}

template <bool kFromRight>
Value FindMethodOfText(Call& call) {
  auto found = Search(call, kFromRight);
  return found ? Value(*found) : Value(-1);
}

template <bool kFromRight>
Value IndexMethod(Call& call) {
  auto found = Search(call, kFromRight);
  if (!found) throw Fault("substring not found");
  return *found;
}

Value CountMethod(Call& call) {
  Window window = WindowOf(call, 1);
  return window.valid ? Value(CountOf(window.text, call.Text(0))) : Value(0);
}

template <bool kEnd>
Value AffixMethod(Call& call) {
  Window window = WindowOf(call, 1);
  auto matches = [&](const Value& affix) {
    if (!affix.IsString()) {
      throw Fault(fmt::format("{} first arg must be str or a tuple of str, not {}",
                              kEnd ? "endswith" : "startswith", affix.type_name()));
    }
    if (!window.valid) return false;
    return kEnd ? window.text.ends_with(affix.text()) : window.text.starts_with(affix.text());
  };
  if (!call.At(0).IsSequence(Sequence::kTuple)) return matches(call.At(0));
  const auto& affixes = call.At(0).list().items;
  return std::any_of(affixes.begin(), affixes.end(), matches);
}

template <bool kEnd>
Value RemoveAffixMethod(Call& call) {
  std::string_view text = call.self.text();
  const std::string& affix = call.Text(0);
  if (affix.empty() || !(kEnd ? text.ends_with(affix) : text.starts_with(affix))) return call.self;
  return kEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
}

// ---- change

Value ReplaceMethod(Call& call) {
  const std::string& text = call.self.text();
  const std::string& old = call.Text(0);
  const std::string& with = call.Text(1);
  Budget::Spend(text.size() / 64);
  uint64_t growth = 0;
  if (__builtin_mul_overflow(CountOf(text, old), with.size(), &growth)) growth = UINT64_MAX / 2;
  Budget::CheckBytes(text.size() + growth);
  return Replace(text, old, with, call.Integer(2, -1));
}

Value JoinMethod(Call& call) {
  std::string out;
  bool first = true;
  for (const Value& item : Items(call.At(0))) {
    if (!item.IsString())
      throw Fault(fmt::format("sequence item: expected str instance, {} found", item.type_name()));
    if (!first) out += call.self.text();
    first = false;
    out += item.text();
    Budget::CheckBytes(out.size());
  }
  return out;
}

template <Side kKeep>
Value JustifyMethod(Call& call) {
  int64_t width = call.Integer(0, 0);
  std::string fill = call.Has(1) ? call.Text(1) : " ";
  if (CountCodePoints(fill) != 1)
    throw Fault("The fill character must be exactly one character long");
  if (width > 0) Budget::CheckBytes(static_cast<uint64_t>(width) * fill.size());
  return Justify(call.self.text(), width, fill, kKeep);
}

Value ZFillMethod(Call& call) {
  std::string_view text = call.self.text();
  int64_t width = call.Integer(0, 0);
  if (width > 0) Budget::CheckBytes(static_cast<uint64_t>(width));
  std::string sign;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    sign = text.substr(0, 1);
    text.remove_prefix(1);
  }
  return sign + Justify(text, width - static_cast<int64_t>(sign.size()), "0", Side::kRight);
}

Value ExpandTabsMethod(Call& call) {
  int64_t size = std::max<int64_t>(0, call.Integer(0, 8));
  std::string out;
  int64_t column = 0;
  for (char c : call.self.text()) {
    if (c != '\t') {
      out += c;
      column = c == '\n' || c == '\r' ? 0 : column + ((c & 0xC0) != 0x80);
      continue;
    }
    int64_t blanks = size == 0 ? 0 : size - column % size;
    Budget::CheckBytes(out.size() + static_cast<uint64_t>(blanks));
    out.append(static_cast<size_t>(blanks), ' ');
    column += blanks;
  }
  return out;
}

template <std::string (*kChange)(std::string_view)>
Value ChangeMethod(Call& call) {
  std::string text = kChange(call.self.text());
  return call.self.IsMarkup() ? Value::Markup(std::move(text)) : Value(std::move(text));
}

// ---- questions

template <bool (*kHolds)(uint32_t)>
Value AllMethod(Call& call) {
  for (std::string_view rest = call.self.text(); !rest.empty();
       rest.remove_prefix(CodePointBytes(rest))) {
    if (!kHolds(FirstCodePoint(rest))) return false;
  }
  return !call.self.text().empty();
}

bool IsAlphaOrDigit(uint32_t c) { return IsAlpha(c) || IsDigit(c); }

template <bool (*kWanted)(uint32_t), bool (*kOther)(uint32_t)>
Value CaseMethod(Call& call) {
  bool any = false;
  for (std::string_view rest = call.self.text(); !rest.empty();
       rest.remove_prefix(CodePointBytes(rest))) {
    if (kOther(FirstCodePoint(rest))) return false;
    any |= kWanted(FirstCodePoint(rest));
  }
  return any;
}

Value IsAsciiMethod(Call& call) { return call.self.string().ascii; }

Value FormatMethod(Call& call) { return BraceFormat(call.self.text(), call.all); }

constexpr Builtin kTextMethods[] = {
    {"capitalize", "", 0, ChangeMethod<Capitalize>},
    {"casefold", "", 0, ChangeMethod<Lower>},
    {"center", "width,fillchar", 1, JustifyMethod<Side::kBoth>},
    {"count", "sub,start,end", 1, CountMethod},
    {"endswith", "suffix,start,end", 1, AffixMethod<true>},
    {"expandtabs", "tabsize", 0, ExpandTabsMethod},
    {"find", "sub,start,end", 1, FindMethodOfText<false>},
    {"format", "*", 0, FormatMethod},
    {"index", "sub,start,end", 1, IndexMethod<false>},
    {"isalnum", "", 0, AllMethod<IsAlphaOrDigit>},
    {"isalpha", "", 0, AllMethod<IsAlpha>},
    {"isascii", "", 0, IsAsciiMethod},
    {"isdecimal", "", 0, AllMethod<IsDigit>},
    {"isdigit", "", 0, AllMethod<IsDigit>},
    {"islower", "", 0, CaseMethod<IsLower, IsUpper>},
    {"isnumeric", "", 0, AllMethod<IsDigit>},
    {"isspace", "", 0, AllMethod<IsSpace>},
    {"isupper", "", 0, CaseMethod<IsUpper, IsLower>},
    {"join", "iterable", 1, JoinMethod},
    {"ljust", "width,fillchar", 1, JustifyMethod<Side::kLeft>},
    {"lower", "", 0, ChangeMethod<Lower>},
    {"lstrip", "chars", 0, StripMethod<Side::kLeft>},
    {"partition", "sep", 1, PartitionMethod<false>},
    {"removeprefix", "prefix", 1, RemoveAffixMethod<false>},
    {"removesuffix", "suffix", 1, RemoveAffixMethod<true>},
    {"replace", "old,new,count", 2, ReplaceMethod},
    {"rfind", "sub,start,end", 1, FindMethodOfText<true>},
    {"rindex", "sub,start,end", 1, IndexMethod<true>},
    {"rjust", "width,fillchar", 1, JustifyMethod<Side::kRight>},
    {"rpartition", "sep", 1, PartitionMethod<true>},
    {"rsplit", "sep,maxsplit", 0, SplitMethod<SplitFromRight, SplitBlanksFromRight>},
    {"rstrip", "chars", 0, StripMethod<Side::kRight>},
    {"split", "sep,maxsplit", 0, SplitMethod<Split, SplitBlanks>},
    {"splitlines", "keepends", 0,
     [](Call& call) { return TextList(SplitLines(call.self.text(), call.Flag(0))); }},
    {"startswith", "prefix,start,end", 1, AffixMethod<false>},
    {"strip", "chars", 0, StripMethod<Side::kBoth>},
    {"swapcase", "", 0, ChangeMethod<SwapCase>},
    {"title", "", 0, ChangeMethod<Title>},
    {"upper", "", 0, ChangeMethod<Upper>},
    {"zfill", "width", 1, ZFillMethod},
};

// ---- dicts

enum class Member { kKey, kValue, kPair };

template <Member kMember>
Value ViewMethod(Call& call) {
  std::vector<Value> items;
  items.reserve(call.self.dict().items.size());
  for (const auto& [key, value] : call.self.dict().items) {
    items.push_back(kMember == Member::kKey     ? key
                    : kMember == Member::kValue ? value
                                                : Value::Tuple({key, value}));
  }
  return Value::MakeList(std::move(items), Sequence::kView);
}

Value GetMethod(Call& call) {
  const Value* found = call.self.dict().Find(call.At(0));
  return found != nullptr ? *found : call.Or(1, Value());
}

Value SelfMethod(Call& call) { return call.self; }

constexpr Builtin kDictMethods[] = {
    {"copy", "", 0, SelfMethod},
    {"get", "key,default", 1, GetMethod},
    {"items", "", 0, ViewMethod<Member::kPair>},
    {"keys", "", 0, ViewMethod<Member::kKey>},
    {"values", "", 0, ViewMethod<Member::kValue>},
};

// ---- lists and tuples

Value CountItems(Call& call) {
  const auto& items = call.self.list().items;
  return static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return Equals(item, call.At(0)); }));
}

Value IndexOfItem(Call& call) {
  const auto& items = call.self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equals(items[i], call.At(0))) return i;
  }
  throw Fault("the value is not in the list");
}

constexpr Builtin kListMethods[] = {
    {"copy", "", 0, SelfMethod},
    {"count", "value", 1, CountItems},
    {"index", "value", 1, IndexOfItem},
};

constexpr std::string_view kUnsafeDict[] = {"clear",      "pop",    "popitem",
                                            "setdefault", "update", "fromkeys"};
constexpr std::string_view kUnsafeList[] = {"append", "clear",  "extend",  "insert",
                                            "pop",    "remove", "reverse", "sort"};

template <size_t N>
const Builtin* FindRow(const Builtin (&rows)[N], std::string_view name) {
  auto found = std::find_if(rows, rows + N, [&](const Builtin& row) { return row.name == name; });
  return found == rows + N ? nullptr : found;
}

template <size_t N>
bool Among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(names, names + N, name) != names + N;
}

}  // namespace

const Builtin* FindMethod(const Value& object, std::string_view name) {
  if (object.IsString()) return FindRow(kTextMethods, name);
  if (object.IsDict()) return FindRow(kDictMethods, name);
  if (object.IsSequence(Sequence::kList)) return FindRow(kListMethods, name);
  if (object.IsSequence(Sequence::kTuple) || object.IsSequence(Sequence::kRange)) {
    return name == "copy" ? nullptr : FindRow(kListMethods, name);
  }
  return nullptr;
}

bool IsUnsafeAttribute(const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4) return true;
  if (object.IsDict()) return Among(kUnsafeDict, name);
  return object.IsSequence(Sequence::kList) && Among(kUnsafeList, name);
}

}  // namespace lockstep::jinja
