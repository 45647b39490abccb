// The global functions of a template: Jinja's own, and those that transformers adds for chat
// templates.
#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kMaxTimeFormat = 1024;

// What a template says about the conversation, kept whole as far as it stays on one line.
Value RaiseException(Call& call) { throw Fault(Printable(call.At(0).Str(), 1000)); }

Value StrftimeNow(Call& call) {
  const std::string& format = call.Text(0);
  if (format.size() > kMaxTimeFormat) throw Fault("a time format is longer than 1024 bytes");
  if (format.empty()) return "";
  // A blank at the end tells an empty result from one that does not fit.
  std::string padded = format.substr(0, format.find('\0')) + " ";
  std::string text(kMaxTimeFormat * 16, '\0');
  size_t size = std::strftime(text.data(), text.size(), padded.c_str(), &call.interpreter.now());
  if (size == 0) throw Fault("a time format prints too much");
  std::string_view printed = std::string_view(text).substr(0, size - 1);
  return printed;
}

Value Range(Call& call) {
  int64_t first = call.Integer(0, 0);
  int64_t start = call.Has(1) ? first : 0;
  int64_t stop = call.Has(1) ? call.Integer(1, 0) : first;
  int64_t step = call.Integer(2, 1);
  if (step == 0) throw Fault("range() arg 3 must not be zero");
  Int span = step > 0 ? Int{stop} - start : Int{start} - stop;
  Int pace = step > 0 ? Int{step} : -Int{step};
  Int count = span <= 0 ? 0 : (span + pace - 1) / pace;
  int64_t limit = Budget::current()->limits().range;
  if (count > limit) throw Fault(fmt::format("a range has {} items, more than {}", count, limit));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) items.emplace_back(start + i * step);
  return Value::MakeList(std::move(items), Sequence::kRange);
}

// The pairs of dict(mapping or pairs, name=value ...).
std::vector<std::pair<Value, Value>> PairsOf(const Args& args) {
  if (args.positional.size() > 1) throw Fault("dict expected at most 1 argument");
  std::vector<std::pair<Value, Value>> pairs;
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.IsDict()) {
      pairs = source.dict().items;
    } else {
      for (const Value& item : Items(source)) {
        std::vector<Value> pair = Items(item);
        if (pair.size() != 2) throw Fault("dict() wants pairs");
        pairs.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) pairs.emplace_back(name, value);
  return pairs;
}

Value MakeDictFunction(Call& call) { return Value::MakeDict(PairsOf(call.all)); }

Value MakeNamespace(Call& call) {
  auto space = std::make_shared<Namespace>();
  for (auto& [name, value] : PairsOf(call.all)) {
    if (name.IsString()) space->Set(name.text(), value);
  }
  call.interpreter.Register(space);
  return Value(std::static_pointer_cast<Object>(space));
}

// joiner(", "): empty at the first call, the separator from then on.
class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  std::string Repr() const override { return "<Joiner>"; }
  bool callable() const override { return true; }
  Value Call(Interpreter&, const Args&) override {
    return std::exchange(used_, true) ? separator_ : "";
  }

 private:
  std::string separator_;
  bool used_ = false;
};

// cycler(a, b ...): next() walks through the values again and again.
class Cycler : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::string Repr() const override { return "<Cycler>"; }
  int depth() const override { return items_.depth(); }
  std::optional<Value> Attribute(std::string_view name) const override;

  Value Current() const { return items_.list().items[place_]; }
  Value Next() {
    Value current = Current();
    place_ = (place_ + 1) % items_.list().items.size();
    return current;
  }
  Value Reset() {
    place_ = 0;
    return Value();
  }

 private:
  Value items_;
  size_t place_ = 0;
};

template <Value (Cycler::*kStep)()>
Value StepCycler(Call& call) {
  return (static_cast<Cycler&>(*call.self.object()).*kStep)();
}
constexpr Builtin kCyclerMethods[] = {{"next", "", 0, StepCycler<&Cycler::Next>},
                                      {"reset", "", 0, StepCycler<&Cycler::Reset>}};

std::optional<Value> Cycler::Attribute(std::string_view name) const {
  if (name == "current") return Current();
  for (const Builtin& row : kCyclerMethods) {
    if (row.name != name) continue;
    return MakeFunction(row, Value(std::const_pointer_cast<Object>(shared_from_this())));
  }
  return std::nullopt;
}

Value MakeCycler(Call& call) {
  if (call.all.positional.empty() || !call.all.named.empty())
    throw Fault("cycler() wants at least one value");
  return Value(std::make_shared<Cycler>(Value::MakeList(call.all.positional)));
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", 0, MakeCycler},
    {"dict", "*", 0, MakeDictFunction},
    {"joiner", "sep", 0,
     [](Call& call) { return Value(std::make_shared<Joiner>(call.Has(0) ? call.Text(0) : ", ")); }},
    {"namespace", "*", 0, MakeNamespace},
    {"raise_exception", "message", 1, RaiseException},
    {"range", "start,stop,step", 1, Range},
    {"strftime_now", "format", 1, StrftimeNow},
};

}  // namespace

const Builtin* FindGlobal(std::string_view name) {
  auto found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                            [&](const Builtin& row) { return row.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace lockstep::jinja
