#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kIndexFrom = 8;  // dicts smaller than this are searched in order
constexpr uint64_t kBytesPerStep = 64;

thread_local Budget* current_budget = nullptr;

int NextDepth(int depth) {
  if (depth >= kMaxValueDepth)
    throw Fault(fmt::format("a value nests deeper than {}", kMaxValueDepth));
  return depth + 1;
}

// The text between brackets of a list or dict, one item at a time so that a limit stops it early.
class ReprWriter {
 public:
  void Write(const Value& value) {
    Budget::Spend(1);
    Budget::CheckBytes(out_.size());
    if (value.IsList()) {
      WriteList(value.list());
    } else if (value.IsDict()) {
      WriteDict(value.dict());
    } else {
      out_ += value.Repr();
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  void WriteItems(const List& list, std::string_view open, std::string_view close) {
    out_ += open;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      Write(list.items[i]);
    }
    out_ += close;
  }

  void WriteList(const List& list) {
    switch (list.kind) {
      case Sequence::kList:
        return WriteItems(list, "[", "]");
      case Sequence::kTuple:
        return WriteItems(list, "(", list.items.size() == 1 ? ",)" : ")");
      case Sequence::kView:
        return WriteItems(list, "dict_view([", "])");
      case Sequence::kRange:
        return WriteRange(list.items);
      case Sequence::kGenerator:
        out_ += "<generator object>";
    }
  }

  void WriteRange(const std::vector<Value>& items) {
    Int first = items.empty() ? 0 : items.front().integer();
    Int step = items.size() > 1 ? items[1].integer() - first : 1;
    Int stop = items.empty() ? 0 : items.back().integer() + step;
    out_ += "range(" + IntText(first) + ", " + IntText(stop);
    out_ += step == 1 ? ")" : ", " + IntText(step) + ")";
  }

  void WriteDict(const Dict& dict) {
    out_ += '{';
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      Write(dict.items[i].first);
      out_ += ": ";
      Write(dict.items[i].second);
    }
    out_ += '}';
  }

  std::string out_;
};

bool ListsEqual(const List& a, const List& b) {
  if (a.kind != b.kind || a.kind == Sequence::kGenerator) return &a == &b;
  return a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), Equals);
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.Find(item.first);
    return other != nullptr && Equals(item.second, *other);
  });
}

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), outer_(current_budget) {
  current_budget = this;
}

Budget::~Budget() { current_budget = outer_; }

Budget* Budget::current() { return current_budget; }

void Budget::Spend(uint64_t steps) {
  Budget* budget = current_budget;
  if (budget == nullptr) return;
  budget->steps_ += steps;
  if (budget->steps_ > budget->limits_.steps) {
    throw Fault(fmt::format("the template takes more than {} steps", budget->limits_.steps));
  }
}

void Budget::CheckBytes(uint64_t bytes) {
  Budget* budget = current_budget;
  if (budget == nullptr) return;
  if (bytes >
      budget->limits_.live_bytes - std::min(budget->live_bytes_, budget->limits_.live_bytes)) {
    throw Fault(fmt::format("the template holds more than {} bytes", budget->limits_.live_bytes));
  }
}

Charge::Charge(size_t bytes) {
  Budget::Spend(1 + bytes / kBytesPerStep);
  Budget::CheckBytes(bytes);
  budget_ = current_budget;
  if (budget_ == nullptr) return;
  bytes_ = bytes;
  budget_->live_bytes_ += bytes;
}

Charge::~Charge() {
  if (budget_ != nullptr) budget_->live_bytes_ -= bytes_;
}

Value Object::Call(Interpreter&, const Args&) {
  throw Fault(fmt::format("'{}' object is not callable", type_name()));
}

std::optional<Value> Object::Attribute(std::string_view) const { return std::nullopt; }

String::String(std::string bytes, bool is_markup)
    : text(std::move(bytes)),
      markup(is_markup),
      ascii(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; })),
      charge(sizeof(String) + text.size()) {}

List::List(std::vector<Value> values, Sequence sequence)
    : items(std::move(values)),
      kind(sequence),
      depth(0),
      charge(sizeof(List) + items.size() * sizeof(Value)) {
  for (const Value& item : items) depth = std::max(depth, item.depth());
  depth = NextDepth(depth);
}

std::vector<Value> List::Take() const {
  if (kind != Sequence::kGenerator) return items;
  std::vector<Value> rest(items.begin() + static_cast<ptrdiff_t>(taken), items.end());
  taken = items.size();
  return rest;
}

Dict::Dict(std::vector<std::pair<Value, Value>> pairs) {
  bool indexed = pairs.size() >= kIndexFrom;
  items.reserve(pairs.size());
  for (auto& [key, value] : pairs) {
    size_t at = items.size();
    if (indexed) {
      at = index_.try_emplace(key, at).first->second;
    } else {
      HashOf(key);
      const Value& wanted = key;
      at = std::find_if(items.begin(), items.end(),
                        [&](const auto& i) { return Equals(i.first, wanted); }) -
           items.begin();
    }
    depth = std::max({depth, key.depth(), value.depth()});
    if (at < items.size()) {
      items[at].second = std::move(value);
    } else {
      items.emplace_back(std::move(key), std::move(value));
    }
  }
  depth = NextDepth(depth);
  charge_.emplace(sizeof(Dict) + items.size() * (indexed ? 4 : 2) * sizeof(Value));
}

const Value* Dict::Find(const Value& key) const {
  if (!index_.empty()) {
    auto found = index_.find(key);
    return found == index_.end() ? nullptr : &items[found->second].second;
  }
  HashOf(key);
  for (const auto& item : items) {
    if (Equals(item.first, key)) return &item.second;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) return Find(Value(key));
  for (const auto& item : items) {
    if (item.first.IsString() && item.first.text() == key) return &item.second;
  }
  return nullptr;
}

size_t Dict::Hash::operator()(const Value& value) const { return HashOf(value); }
bool Dict::Equal::operator()(const Value& a, const Value& b) const { return Equals(a, b); }

Value::Value(std::string text) : data_(std::make_shared<const String>(std::move(text), false)) {}

Value Value::Markup(std::string text) {
  return Value(std::make_shared<const String>(std::move(text), true));
}

Value Value::MakeList(std::vector<Value> items, Sequence kind) {
  Value value;
  value.data_ = std::make_shared<const List>(std::move(items), kind);
  return value;
}

Value Value::MakeDict(std::vector<std::pair<Value, Value>> items) {
  Value value;
  value.data_ = std::make_shared<const Dict>(std::move(items));
  return value;
}

Value Value::MakeUndefined(std::string message) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return value;
}

bool Value::IsMarkup() const { return IsString() && string().markup; }
bool Value::IsSequence(Sequence kind) const { return IsList() && list().kind == kind; }

double Value::number() const {
  return IsFloat() ? std::get<double>(data_) : static_cast<double>(integer());
}

const std::string& Value::text() const { return string().text; }

const std::string& Value::undefined_message() const {
  return std::get<std::shared_ptr<const Undefined>>(data_)->message;
}

bool Value::Truth() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsFloat()) return number() != 0;
  if (IsBool() || IsInt()) return integer() != 0;
  if (IsString()) return !text().empty();
  if (IsDict()) return !dict().items.empty();
  if (IsList()) return list().kind == Sequence::kGenerator || !list().items.empty();
  return true;
}

std::string Value::Str() const {
  if (IsString()) return text();
  if (IsUndefined()) return "";
  return Repr();
}

std::string Value::Repr() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "None";
  if (IsBool()) return boolean() ? "True" : "False";
  if (IsInt()) return IntText(integer());
  if (IsFloat()) return PythonFloat(number());
  if (IsObject()) return object()->Repr();
  if (IsString()) {
    std::string quoted = PythonQuoted(text());
    return IsMarkup() ? "Markup(" + quoted + ")" : quoted;
  }
  ReprWriter writer;
  writer.Write(*this);
  return writer.Take();
}

std::string_view Value::type_name() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInt()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return IsMarkup() ? "Markup" : "str";
  if (IsDict()) return "dict";
  if (IsObject()) return object()->type_name();
  switch (list().kind) {
    case Sequence::kList:
      return "list";
    case Sequence::kTuple:
      return "tuple";
    case Sequence::kGenerator:
      return "generator";
    case Sequence::kView:
      return "dict_view";
    case Sequence::kRange:
      return "range";
  }
  return "object";
}

int Value::depth() const {
  if (IsList()) return list().depth;
  if (IsDict()) return dict().depth;
  if (IsObject()) return object()->depth();
  return 0;
}

bool Value::Same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (IsList()) return &list() == &other.list();
  if (IsDict()) return &dict() == &other.dict();
  if (IsObject()) return object() == other.object();
  return Equals(*this, other);
}

bool Equals(const Value& a, const Value& b) {
  Budget::Spend(1);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsFloat() || b.IsFloat()) return a.number() == b.number();
    return a.integer() == b.integer();
  }
  if (a.IsString() && b.IsString()) {
    if (a.text().size() == b.text().size()) Budget::Spend(a.text().size() / kBytesPerStep);
    return a.text() == b.text();
  }
  if (a.IsList() && b.IsList()) return ListsEqual(a.list(), b.list());
  if (a.IsDict() && b.IsDict()) return DictsEqual(a.dict(), b.dict());
  if (a.IsObject() && b.IsObject()) return a.object() == b.object();
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

bool Less(const Value& a, const Value& b) {
  Budget::Spend(1);
  for (const Value* side : {&a, &b}) {
    if (side->IsUndefined()) throw Fault(side->undefined_message());
  }
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsFloat() || b.IsFloat()) return a.number() < b.number();
    return a.integer() < b.integer();
  }
  if (a.IsString() && b.IsString())
    return a.text() < b.text();  // UTF-8 keeps the order of code points
  bool ordered = a.IsSequence(Sequence::kList) || a.IsSequence(Sequence::kTuple);
  if (ordered && b.IsList() && a.list().kind == b.list().kind) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!Equals(left[i], right[i])) return Less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  throw Fault(fmt::format("'<' not supported between instances of '{}' and '{}'", a.type_name(),
                          b.type_name()));
}

bool Contains(const Value& haystack, const Value& needle) {
  if (haystack.IsString()) {
    if (!needle.IsString()) {
      throw Fault(
          fmt::format("'in <string>' requires string as left operand, not {}", needle.type_name()));
    }
    Budget::Spend(1 + haystack.text().size() / kBytesPerStep);
    return Find(haystack.text(), needle.text(), 0) != std::string::npos;
  }
  if (haystack.IsDict()) return haystack.dict().Find(needle) != nullptr;
  if (haystack.IsSequence(Sequence::kGenerator)) {
    const List& list = haystack.list();
    while (list.taken < list.items.size()) {
      if (Equals(list.items[list.taken++], needle)) return true;
    }
    return false;
  }
  if (!IsIterable(haystack)) {
    throw Fault(fmt::format("argument of type '{}' is not iterable", haystack.type_name()));
  }
  if (haystack.IsUndefined()) return false;
  const auto& items = haystack.list().items;
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return Equals(item, needle); });
}

std::optional<size_t> Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString())
    return value.string().ascii ? value.text().size() : CountCodePoints(value.text());
  if (value.IsDict()) return value.dict().items.size();
  if (value.IsList() && value.list().kind != Sequence::kGenerator) return value.list().items.size();
  return std::nullopt;
}

bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsDict() || value.IsList();
}

std::vector<Value> Items(const Value& value) {
  if (!IsIterable(value))
    throw Fault(fmt::format("'{}' object is not iterable", value.type_name()));
  std::vector<Value> items;
  if (value.IsString()) {
    for (std::string_view rest = value.text(); !rest.empty();) {
      size_t size = CodePointBytes(rest);
      items.emplace_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
  } else if (value.IsDict()) {
    items.reserve(value.dict().items.size());
    for (const auto& item : value.dict().items) items.push_back(item.first);
  } else if (value.IsList()) {
    items = value.list().Take();
  }
  Budget::Spend(items.size() / 16);
  return items;
}

size_t HashOf(const Value& value) {
  if (value.IsString()) return std::hash<std::string>()(value.text());
  if (value.IsNumber()) {
    double number = value.number();
    return std::hash<double>()(number == 0 ? 0.0 : number);
  }
  if (value.IsSequence(Sequence::kTuple)) {
    size_t hash = 17;
    for (const Value& item : value.list().items) {
      Budget::Spend(1);
      hash = hash * 1000003 + HashOf(item);
    }
    return hash;
  }
  if (value.IsDict() || value.IsSequence(Sequence::kList)) {
    throw Fault(fmt::format("unhashable type: '{}'", value.type_name()));
  }
  if (value.IsList()) return std::hash<const void*>()(&value.list());
  if (value.IsObject()) return std::hash<const void*>()(value.object().get());
  return value.IsNone() ? 1 : 2;
}

std::string IntText(Int value) { return fmt::format("{}", value); }

Int Checked(bool overflow, const Int& value) {
  if (overflow) throw Fault("an integer is out of range");
  return value;
}

}  // namespace lockstep::jinja
