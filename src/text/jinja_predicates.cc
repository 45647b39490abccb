// The tests of `is` (Jinja 3.1 documentation, "List of Builtin Tests").
#include <algorithm>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

Value IsDivisibleBy(Call& call) {
  return Equals(Arithmetic(Op::kMod, call.self, call.At(0)), Value(0));
}

Value IsOdd(Call& call) { return Equals(Arithmetic(Op::kMod, call.self, Value(2)), Value(1)); }
Value IsEven(Call& call) { return Equals(Arithmetic(Op::kMod, call.self, Value(2)), Value(0)); }

// str.isupper(): some letter has the case asked for and none has the other.
bool HasOnlyCase(const Value& value, bool upper) {
  bool any = false;
  std::string text = value.Str();
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(CodePointBytes(rest))) {
    uint32_t c = FirstCodePoint(rest);
    if (upper ? IsLower(c) : IsUpper(c)) return false;
    any |= upper ? IsUpper(c) : IsLower(c);
  }
  return any;
}

// Python's sequences, as far as a test for len() and [] tells: dicts and undefined count.
bool IsSequenceLike(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsDict() ||
         value.IsSequence(Sequence::kList) || value.IsSequence(Sequence::kTuple) ||
         value.IsSequence(Sequence::kRange);
}

template <Op kOp>
Value IsCompared(Call& call) {
  return Compare(kOp, call.self, call.At(0));
}

constexpr Builtin kTests[] = {
    {"!=", "other", 1, IsCompared<Op::kNe>},
    {"<", "other", 1, IsCompared<Op::kLt>},
    {"<=", "other", 1, IsCompared<Op::kLe>},
    {"==", "other", 1, IsCompared<Op::kEq>},
    {">", "other", 1, IsCompared<Op::kGt>},
    {">=", "other", 1, IsCompared<Op::kGe>},
    {"boolean", "", 0, [](Call& call) -> Value { return call.self.IsBool(); }},
    {"callable", "", 0,
     [](Call& call) -> Value { return call.self.IsCallable() || call.self.IsUndefined(); }},
    {"defined", "", 0, [](Call& call) -> Value { return !call.self.IsUndefined(); }},
    {"divisibleby", "num", 1, IsDivisibleBy},
    {"eq", "other", 1, IsCompared<Op::kEq>},
    {"equalto", "other", 1, IsCompared<Op::kEq>},
    {"escaped", "", 0, [](Call& call) -> Value { return call.self.IsMarkup(); }},
    {"even", "", 0, IsEven},
    {"false", "", 0,
     [](Call& call) -> Value { return call.self.IsBool() && !call.self.boolean(); }},
    {"filter", "", 0,
     [](Call& call) -> Value {
       return call.self.IsString() && FindFilter(call.self.text()) != nullptr;
     }},
    {"float", "", 0, [](Call& call) -> Value { return call.self.IsFloat(); }},
    {"ge", "other", 1, IsCompared<Op::kGe>},
    {"greaterthan", "other", 1, IsCompared<Op::kGt>},
    {"gt", "other", 1, IsCompared<Op::kGt>},
    {"in", "seq", 1, IsCompared<Op::kIn>},
    {"integer", "", 0, [](Call& call) -> Value { return call.self.IsInt(); }},
    {"iterable", "", 0, [](Call& call) -> Value { return IsIterable(call.self); }},
    {"le", "other", 1, IsCompared<Op::kLe>},
    {"lessthan", "other", 1, IsCompared<Op::kLt>},
    {"lower", "", 0, [](Call& call) -> Value { return HasOnlyCase(call.self, false); }},
    {"lt", "other", 1, IsCompared<Op::kLt>},
    {"mapping", "", 0, [](Call& call) -> Value { return call.self.IsDict(); }},
    {"ne", "other", 1, IsCompared<Op::kNe>},
    {"none", "", 0, [](Call& call) -> Value { return call.self.IsNone(); }},
    {"number", "", 0, [](Call& call) -> Value { return call.self.IsNumber(); }},
    {"odd", "", 0, IsOdd},
    {"sameas", "other", 1, [](Call& call) -> Value { return call.self.Same(call.At(0)); }},
    {"sequence", "", 0, [](Call& call) -> Value { return IsSequenceLike(call.self); }},
    {"string", "", 0, [](Call& call) -> Value { return call.self.IsString(); }},
    {"test", "", 0,
     [](Call& call) -> Value {
       return call.self.IsString() && FindTest(call.self.text()) != nullptr;
     }},
    {"true", "", 0, [](Call& call) -> Value { return call.self.IsBool() && call.self.boolean(); }},
    {"undefined", "", 0, [](Call& call) -> Value { return call.self.IsUndefined(); }},
    {"upper", "", 0, [](Call& call) -> Value { return HasOnlyCase(call.self, true); }},
};

}  // namespace

const Builtin* FindTest(std::string_view name) {
  auto found = std::find_if(std::begin(kTests), std::end(kTests),
                            [&](const Builtin& row) { return row.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace lockstep::jinja
