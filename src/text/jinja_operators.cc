#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

std::string_view Sign(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void Unsupported(Op op, const Value& a, const Value& b) {
  if (op == Op::kAdd &&
      (a.IsString() || a.IsSequence(Sequence::kList) || a.IsSequence(Sequence::kTuple))) {
    std::string_view type = a.IsString() ? "str" : a.type_name();
    throw Fault(
        fmt::format("can only concatenate {} (not \"{}\") to {}", type, b.type_name(), type));
  }
  throw Fault(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", Sign(op),
                          a.type_name(), b.type_name()));
}

void RefuseUndefined(const Value& value) {
  if (value.IsUndefined()) throw Fault(value.undefined_message());
}

Int FloorDiv(Int a, Int b) {
  Int quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int Power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0) result = Checked(__builtin_mul_overflow(result, base, &result), result);
    exponent /= 2;
    if (exponent > 0) base = Checked(__builtin_mul_overflow(base, base, &base), base);
  }
  return result;
}

Value IntArithmetic(Op op, Int a, Int b) {
  constexpr Int kMin = static_cast<Int>(static_cast<unsigned __int128>(1) << 127);
  Int result = 0;
  switch (op) {
    case Op::kAdd:
      return Checked(__builtin_add_overflow(a, b, &result), result);
    case Op::kSub:
      return Checked(__builtin_sub_overflow(a, b, &result), result);
    case Op::kMul:
      return Checked(__builtin_mul_overflow(a, b, &result), result);
    case Op::kPow:
      if (b >= 0) return Power(a, b);
      if (a == 0) throw Fault("0.0 cannot be raised to a negative power");
      return std::pow(static_cast<double>(a), static_cast<double>(b));
    default:
      break;
  }
  if (b == 0) throw Fault("division by zero");
  if (op == Op::kDiv) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == Op::kMod ? Value(0) : Value(Checked(a == kMin, a == kMin ? a : -a));
  return op == Op::kFloorDiv ? FloorDiv(a, b) : a - FloorDiv(a, b) * b;
}

Value FloatArithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kPow:
      if (a == 0 && b < 0) throw Fault("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
        throw Fault("a negative number cannot be raised to a fractional power");
      }
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) throw Fault("division by zero");
  if (op == Op::kDiv) return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == Op::kMod ? rest : std::floor((a - rest) / b + 0.5);
}

Value AddText(const Value& a, const Value& b) {
  Budget::CheckBytes(a.text().size() + b.text().size());
  if (!a.IsMarkup() && !b.IsMarkup()) return a.text() + b.text();
  auto safe = [](const Value& v) { return v.IsMarkup() ? v.text() : EscapeHtml(v.text()); };
  return Value::Markup(safe(a) + safe(b));
}

bool IsListOrTuple(const Value& value) {
  return value.IsSequence(Sequence::kList) || value.IsSequence(Sequence::kTuple);
}

Value AddLists(const List& a, const List& b) {
  Budget::CheckBytes((a.items.size() + b.items.size()) * sizeof(Value));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return Value::MakeList(std::move(items), a.kind);
}

Value Repeat(const Value& value, Int count) {
  uint64_t unit =
      value.IsString() ? value.text().size() : value.list().items.size() * sizeof(Value);
  uint64_t times = count <= 0 || unit == 0 ? 0
                   : count > INT64_MAX     ? INT64_MAX
                                           : static_cast<uint64_t>(count);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(unit, times, &bytes)) bytes = UINT64_MAX;
  Budget::CheckBytes(bytes);
  if (value.IsString()) {
    std::string text;
    text.reserve(bytes);
    for (uint64_t i = 0; i < times; ++i) text += value.text();
    return value.IsMarkup() ? Value::Markup(std::move(text)) : Value(std::move(text));
  }
  std::vector<Value> items;
  const auto& part = value.list().items;
  for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), part.begin(), part.end());
  return Value::MakeList(std::move(items), value.list().kind);
}

// A subscript that must be an integer or none.
std::optional<Int> Bound(const Value& value) {
  if (value.IsNone()) return std::nullopt;
  if (!value.IsInt() && !value.IsBool()) {
    throw Fault("slice indices must be integers or None or have an __index__ method");
  }
  return value.integer();
}

// The positions start, start + step, ... that Python's slice visits in a sequence of `size` items.
struct Positions {
  int64_t start;
  int64_t step;
  int64_t count;
};
Positions SlicePositions(int64_t size, std::optional<Int> start, std::optional<Int> stop,
                         std::optional<Int> step) {
  Int stride = step.value_or(1);
  if (stride == 0) throw Fault("slice step cannot be zero");
  stride = std::clamp<Int>(stride, -size - 1, size + 1);
  Int low = stride > 0 ? 0 : -1;
  Int high = stride > 0 ? size : size - 1;
  auto place = [&](std::optional<Int> bound, Int absent) {
    if (!bound) return absent;
    return std::clamp<Int>(*bound < 0 ? *bound + size : *bound, low, high);
  };
  Int first = place(start, stride > 0 ? low : high);
  Int last = place(stop, stride > 0 ? high : low);
  Int span = stride > 0 ? last - first : first - last;
  Int pace = stride > 0 ? stride : -stride;
  Int count = span <= 0 ? 0 : (span + pace - 1) / pace;
  return {static_cast<int64_t>(first), static_cast<int64_t>(stride), static_cast<int64_t>(count)};
}

Value SliceText(const Value& value, const Value& start, const Value& stop, const Value& step) {
  const std::string& text = value.text();
  bool ascii = value.string().ascii;
  auto at =
      SlicePositions(static_cast<int64_t>(*Length(value)), Bound(start), Bound(stop), Bound(step));
  Budget::Spend(text.size() / 64);
  if (at.count == 0) return "";
  if (at.step == 1) {
    size_t begin = ascii ? at.start : OffsetOf(text, at.start);
    std::string_view rest = std::string_view(text).substr(begin);
    return rest.substr(0, ascii ? at.count : OffsetOf(rest, at.count));
  }
  std::vector<std::string_view> points;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(points.back().size())) {
    points.push_back(rest.substr(0, CodePointBytes(rest)));
  }
  std::string out;
  for (int64_t i = 0; i < at.count; ++i) out += points[at.start + i * at.step];
  return out;
}

// The place of item `index` among `size`, negative from the end.
std::optional<size_t> Position(const Value& index, size_t size) {
  if (!index.IsInt() && !index.IsBool()) return std::nullopt;
  Int place = index.integer();
  if (place < 0) place += size;
  if (place < 0 || place >= static_cast<Int>(size)) return std::nullopt;
  return static_cast<size_t>(place);
}

std::optional<Value> FindItem(const Value& value, const Value& key) {
  if (value.IsDict()) {
    if (key.IsDict() || key.IsSequence(Sequence::kList)) return std::nullopt;
    const Value* found = value.dict().Find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (value.IsString()) {
    auto place = Position(key, *Length(value));
    if (!place) return std::nullopt;
    std::string_view rest = value.text();
    rest.remove_prefix(value.string().ascii ? *place : OffsetOf(rest, *place));
    return Value(rest.substr(0, CodePointBytes(rest)));
  }
  if (IsListOrTuple(value) || value.IsSequence(Sequence::kRange)) {
    auto place = Position(key, value.list().items.size());
    if (place) return value.list().items[*place];
  }
  return std::nullopt;
}

std::optional<Value> FindAttribute(const Value& value, std::string_view name) {
  if (value.IsObject()) return value.object()->Attribute(name);
  if (const Builtin* method = FindMethod(value, name)) return MakeFunction(*method, value);
  if (!IsUnsafeAttribute(value, name)) return std::nullopt;
  return Value::MakeUndefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.",
                                          Printable(name, 60), value.type_name()));
}

std::string TypeText(const Value& value) {
  return value.IsNone() ? "None" : fmt::format("{} object", value.type_name());
}

}  // namespace

Value Arithmetic(Op op, const Value& a, const Value& b) {
  if (op == Op::kMod && a.IsString()) return PercentFormat(a, b);
  RefuseUndefined(a);
  RefuseUndefined(b);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsFloat() || b.IsFloat()) return FloatArithmetic(op, a.number(), b.number());
    return IntArithmetic(op, a.integer(), b.integer());
  }
  if (op == Op::kAdd && a.IsString() && b.IsString()) return AddText(a, b);
  if (op == Op::kAdd && IsListOrTuple(a) && IsListOrTuple(b) && a.list().kind == b.list().kind) {
    return AddLists(a.list(), b.list());
  }
  auto whole = [](const Value& v) { return v.IsInt() || v.IsBool(); };
  if (op == Op::kMul && (a.IsString() || IsListOrTuple(a)) && whole(b))
    return Repeat(a, b.integer());
  if (op == Op::kMul && (b.IsString() || IsListOrTuple(b)) && whole(a))
    return Repeat(b, a.integer());
  Unsupported(op, a, b);
}

bool Compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return Equals(a, b);
    case Op::kNe:
      return !Equals(a, b);
    case Op::kLt:
      return Less(a, b);
    case Op::kLe:
      return Less(a, b) || Equals(a, b);
    case Op::kGt:
      return Less(b, a);
    case Op::kGe:
      return Less(b, a) || Equals(a, b);
    case Op::kIn:
      return Contains(b, a);
    default:
      return !Contains(b, a);
  }
}

Value Negate(const Value& value) {
  RefuseUndefined(value);
  if (value.IsFloat()) return -value.number();
  if (!value.IsNumber())
    throw Fault(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
  return IntArithmetic(Op::kSub, 0, value.integer());
}

Value Plus(const Value& value) {
  RefuseUndefined(value);
  if (value.IsFloat()) return value;
  if (!value.IsNumber())
    throw Fault(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
  return value.integer();
}

Value GetAttribute(const Value& value, std::string_view name) {
  RefuseUndefined(value);
  if (auto found = FindAttribute(value, name)) return *found;
  if (value.IsDict()) {
    if (const Value* item = value.dict().Find(name)) return *item;
  }
  return Value::MakeUndefined(
      fmt::format("'{}' has no attribute '{}'", TypeText(value), Printable(name, 60)));
}

Value GetItem(const Value& value, const Value& key) {
  RefuseUndefined(value);
  if (auto found = FindItem(value, key)) return *found;
  if (!key.IsString()) {
    std::string text = key.IsNumber() ? key.Repr() : std::string(key.type_name());
    return Value::MakeUndefined(fmt::format("{} has no element {}", TypeText(value), text));
  }
  if (auto found = FindAttribute(value, key.text())) return *found;
  return Value::MakeUndefined(
      fmt::format("'{}' has no attribute '{}'", TypeText(value), Printable(key.text(), 60)));
}

Value GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  RefuseUndefined(value);
  if (value.IsString()) return SliceText(value, start, stop, step);
  if (!IsListOrTuple(value) && !value.IsSequence(Sequence::kRange)) {
    throw Fault(fmt::format("'{}' object is not subscriptable by a slice", value.type_name()));
  }
  const List& list = value.list();
  auto at = SlicePositions(static_cast<int64_t>(list.items.size()), Bound(start), Bound(stop),
                           Bound(step));
  std::vector<Value> items;
  items.reserve(at.count);
  for (int64_t i = 0; i < at.count; ++i) items.push_back(list.items[at.start + i * at.step]);
  return Value::MakeList(std::move(items), list.kind);
}

}  // namespace lockstep::jinja
