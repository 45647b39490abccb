// Filters on sequences, dicts and any value (Jinja 3.1 documentation, "List of Builtin Filters").
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

Value Generator(std::vector<Value> items) {
  return Value::MakeList(std::move(items), Sequence::kGenerator);
}

// "a.b.0" as a path of keys; an integer or none as it is.
std::vector<Value> PathOf(const Value& attribute) {
  std::vector<Value> path;
  if (attribute.IsNone()) return path;
  if (!attribute.IsString()) return {attribute};
  for (std::string_view part : Split(attribute.text(), ".", -1)) {
    bool index = !part.empty() && part.size() < 10 &&
                 part.find_first_not_of("0123456789") == std::string_view::npos;
    path.push_back(index ? Value(std::atoi(std::string(part).c_str())) : Value(part));
  }
  return path;
}

Value Follow(Value value, const std::vector<Value>& path, const Value* fallback = nullptr) {
  for (const Value& key : path) {
    value = GetItem(value, key);
    if (fallback != nullptr && value.IsUndefined()) value = *fallback;
  }
  return value;
}

Value IgnoreCase(Value value) { return value.IsString() ? Value(Lower(value.text())) : value; }

struct Keyed {
  Value key;
  Value item;
};

// Items with their sort keys, ordered; equal keys keep their order, also in reverse.
void SortKeyed(std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [reverse](const Keyed& a, const Keyed& b) {
    return reverse ? Less(b.key, a.key) : Less(a.key, b.key);
  });
}

std::vector<Value> ItemsOf(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

// ---- any value

Value DefaultFilter(Call& call) {
  bool replace = call.self.IsUndefined() || (call.Flag(1) && !call.self.Truth());
  return replace ? call.Or(0, Value("")) : call.self;
}

Value LengthFilter(Call& call) {
  auto length = Length(call.self);
  if (!length) throw Fault(fmt::format("object of type '{}' has no len()", call.self.type_name()));
  return *length;
}

Value AttrFilter(Call& call) {
  if (!call.self.IsDict() || FindMethod(call.self, call.Text(0)) != nullptr) {
    return GetAttribute(call.self, call.Text(0));
  }
  return Value::MakeUndefined("'dict object' has no attribute '" + Printable(call.Text(0), 60) +
                              "'");
}

// ---- dicts

Value ItemsFilter(Call& call) {
  if (call.self.IsUndefined()) return Generator({});
  if (!call.self.IsDict()) throw Fault("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : call.self.dict().items)
    pairs.push_back(Value::Tuple({key, value}));
  return Generator(std::move(pairs));
}

Value DictSortFilter(Call& call) {
  if (!call.self.IsDict()) {
    if (call.self.IsUndefined()) throw Fault(call.self.undefined_message());
    throw Fault(fmt::format("dictsort wants a mapping, found {}", call.self.type_name()));
  }
  bool case_sensitive = call.Flag(0);
  std::string by = call.Has(1) ? call.Text(1) : "key";
  if (by != "key" && by != "value") throw Fault("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> pairs;
  for (const auto& [key, value] : call.self.dict().items) {
    Value sort_key = by == "key" ? key : value;
    pairs.push_back({case_sensitive ? sort_key : IgnoreCase(sort_key), Value::Tuple({key, value})});
  }
  SortKeyed(pairs, call.Flag(2));
  return Value::MakeList(ItemsOf(std::move(pairs)));
}

// ---- one item

Value FirstFilter(Call& call) {
  if (call.self.IsSequence(Sequence::kGenerator)) {
    const List& list = call.self.list();
    if (list.taken < list.items.size()) return list.items[list.taken++];
  } else {
    std::vector<Value> items = Items(call.self);
    if (!items.empty()) return items.front();
  }
  return Value::MakeUndefined("No first item, sequence was empty.");
}

Value LastFilter(Call& call) {
  if (call.self.IsSequence(Sequence::kGenerator))
    throw Fault("'generator' object is not reversible");
  std::vector<Value> items = Items(call.self);
  return items.empty() ? Value::MakeUndefined("No last item, sequence was empty.") : items.back();
}

template <bool kMax>
Value ExtremeFilter(Call& call) {
  std::vector<Value> items = Items(call.self);
  if (items.empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  std::vector<Value> path = PathOf(call.Or(1, Value()));
  auto key_of = [&](const Value& item) {
    Value key = Follow(item, path);
    return call.Flag(0) ? key : IgnoreCase(key);
  };
  Value best = items[0];
  Value best_key = key_of(best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!(kMax ? Less(best_key, key) : Less(key, best_key))) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Value SumFilter(Call& call) {
  std::vector<Value> path = PathOf(call.Or(0, Value()));
  Value total = call.Or(1, Value(0));
  if (total.IsString()) throw Fault("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Items(call.self))
    total = Arithmetic(Op::kAdd, total, Follow(item, path));
  return total;
}

Value JoinFilter(Call& call) {
  std::string separator = call.Has(0) ? call.At(0).Str() : "";
  std::vector<Value> path = PathOf(call.Or(1, Value()));
  std::string out;
  bool first = true;
  for (const Value& item : Items(call.self)) {
    if (!first) out += separator;
    first = false;
    out += Follow(item, path).Str();
    Budget::CheckBytes(out.size());
  }
  return out;
}

// ---- other sequences

Value ListFilter(Call& call) { return Value::MakeList(Items(call.self)); }

Value ReverseFilter(Call& call) {
  std::vector<Value> items = Items(call.self);
  std::reverse(items.begin(), items.end());
  if (!call.self.IsString()) return Generator(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.text();
  return text;
}

Value SortFilter(Call& call) {
  bool case_sensitive = call.Flag(1);
  std::vector<std::vector<Value>> paths;
  if (call.Given(2) && call.At(2).IsString()) {
    for (std::string_view part : Split(call.At(2).text(), ",", -1))
      paths.push_back(PathOf(Value(part)));
  } else {
    paths.push_back(PathOf(call.Or(2, Value())));
  }
  std::vector<Keyed> keyed;
  for (Value& item : Items(call.self)) {
    std::vector<Value> key;
    for (const auto& path : paths) {
      Value part = Follow(item, path);
      key.push_back(case_sensitive ? part : IgnoreCase(part));
    }
    keyed.push_back({Value::MakeList(std::move(key)), std::move(item)});
  }
  SortKeyed(keyed, call.Flag(0));
  return Value::MakeList(ItemsOf(std::move(keyed)));
}

Value UniqueFilter(Call& call) {
  std::vector<Value> path = PathOf(call.Or(1, Value()));
  std::vector<std::pair<Value, Value>> by_key;
  for (Value& item : Items(call.self)) {
    Value key = Follow(item, path);
    by_key.emplace_back(call.Flag(0) ? key : IgnoreCase(key), std::move(item));
  }
  // A dict keeps the first place of a key but its last value: reversed twice, the first value.
  std::vector<std::pair<Value, Value>> places;
  for (size_t i = by_key.size(); i-- > 0;) places.emplace_back(by_key[i].first, Value(i));
  std::vector<size_t> first;
  Value dict = Value::MakeDict(std::move(places));
  for (const auto& entry : dict.dict().items)
    first.push_back(static_cast<size_t>(entry.second.integer()));
  std::sort(first.begin(), first.end());
  std::vector<Value> kept;
  for (size_t i : first) kept.push_back(by_key[i].second);
  return Generator(std::move(kept));
}

Value GroupByFilter(Call& call) {
  std::vector<Value> path = PathOf(call.At(0));
  const Value* fallback = call.Given(1) ? &call.At(1) : nullptr;
  bool case_sensitive = call.Flag(2);
  std::vector<Keyed> keyed;
  for (Value& item : Items(call.self)) {
    Value key = Follow(item, path, fallback);
    keyed.push_back({case_sensitive ? key : IgnoreCase(key), std::move(item)});
  }
  SortKeyed(keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    size_t end = i;
    for (; end < keyed.size() && Equals(keyed[end].key, keyed[i].key); ++end)
      members.push_back(keyed[end].item);
    Value name = Follow(members[0], path, fallback);
    groups.push_back(Value::Tuple({std::move(name), Value::MakeList(std::move(members))}));
    i = end;
  }
  return Value::MakeList(std::move(groups));
}

Value BatchFilter(Call& call) {
  int64_t size = call.Integer(0, 0);
  if (size < 1) throw Fault("batch wants a positive size");
  std::vector<Value> batches;
  std::vector<Value> items = Items(call.self);
  for (size_t i = 0; i < items.size(); i += static_cast<size_t>(size)) {
    size_t end = items.size() - i <= static_cast<size_t>(size) ? items.size()
                                                               : i + static_cast<size_t>(size);
    std::vector<Value> batch(items.begin() + static_cast<ptrdiff_t>(i),
                             items.begin() + static_cast<ptrdiff_t>(end));
    if (call.Given(1)) {
      Budget::CheckBytes(static_cast<uint64_t>(size) * sizeof(Value));
      batch.resize(static_cast<size_t>(size), call.At(1));
    }
    batches.push_back(Value::MakeList(std::move(batch)));
    if (end == items.size()) break;
  }
  return Generator(std::move(batches));
}

Value SliceFilter(Call& call) {
  int64_t count = call.Integer(0, 0);
  if (count < 1) throw Fault("slice wants a positive count");
  Budget::CheckBytes(static_cast<uint64_t>(std::min<int64_t>(count, INT32_MAX)) * sizeof(List));
  std::vector<Value> items = Items(call.self);
  int64_t size = static_cast<int64_t>(items.size());
  int64_t longer = size % count;
  std::vector<Value> slices;
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    int64_t end = begin + size / count + (i < longer);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (call.Given(1) && i >= longer) part.push_back(call.At(1));
    slices.push_back(Value::MakeList(std::move(part)));
    begin = end;
  }
  return Generator(std::move(slices));
}

// ---- map and select

// The arguments behind the first `skip` ones.
Args Rest(const Args& args, size_t skip) {
  Args rest;
  skip = std::min(skip, args.positional.size());
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(skip),
                         args.positional.end());
  rest.named = args.named;
  return rest;
}

const std::string& NameAt(const Args& args, size_t i, std::string_view what) {
  if (!args.positional[i].IsString()) throw Fault(fmt::format("expected the name of a {}", what));
  return args.positional[i].text();
}

// Jinja takes whatever is false, none for instance, for an empty sequence here.
std::vector<Value> ItemsOrNone(const Value& value) {
  return value.Truth() ? Items(value) : std::vector<Value>{};
}

Value MapFilter(Call& call) {
  std::vector<Value> mapped;
  if (!call.all.positional.empty()) {
    const std::string& filter = NameAt(call.all, 0, "filter");
    Args rest = Rest(call.all, 1);
    for (const Value& item : ItemsOrNone(call.self))
      mapped.push_back(call.interpreter.ApplyFilter(filter, item, rest));
    return Generator(std::move(mapped));
  }
  const Value* attribute = nullptr;
  const Value* fallback = nullptr;
  for (const auto& [name, value] : call.all.named) {
    if (name != "attribute" && name != "default") {
      throw Fault("Unexpected keyword argument '" + Printable(name, 60) + "'");
    }
    (name == "attribute" ? attribute : fallback) = &value;
  }
  if (attribute == nullptr) throw Fault("map requires a filter argument");
  if (fallback != nullptr && fallback->IsNone()) fallback = nullptr;
  std::vector<Value> path = PathOf(*attribute);
  for (const Value& item : ItemsOrNone(call.self)) mapped.push_back(Follow(item, path, fallback));
  return Generator(std::move(mapped));
}

// select, reject, selectattr and rejectattr: items whose value passes, or fails, a test.
template <bool kAttribute, bool kKeep>
Value SelectFilter(Call& call) {
  size_t first = kAttribute ? 1 : 0;
  if (call.all.positional.size() < first) throw Fault("Missing parameter for attribute name");
  std::vector<Value> path;
  if (kAttribute) path = PathOf(call.all.positional[0]);
  bool tested = call.all.positional.size() > first;
  Args rest = Rest(call.all, first + 1);
  std::vector<Value> kept;
  for (Value& item : ItemsOrNone(call.self)) {
    Value value = Follow(item, path);
    bool passes = tested ? call.interpreter.ApplyTest(NameAt(call.all, first, "test"), value, rest)
                         : value.Truth();
    if (passes == kKeep) kept.push_back(std::move(item));
  }
  return Generator(std::move(kept));
}

constexpr Builtin kItemFilters[] = {
    {"attr", "name", 1, AttrFilter},
    {"batch", "linecount,fill_with", 1, BatchFilter},
    {"count", "", 0, LengthFilter},
    {"d", "default_value,boolean", 0, DefaultFilter},
    {"default", "default_value,boolean", 0, DefaultFilter},
    {"dictsort", "case_sensitive,by,reverse", 0, DictSortFilter},
    {"first", "", 0, FirstFilter},
    {"groupby", "attribute,default,case_sensitive", 1, GroupByFilter},
    {"items", "", 0, ItemsFilter},
    {"join", "d,attribute", 0, JoinFilter},
    {"last", "", 0, LastFilter},
    {"length", "", 0, LengthFilter},
    {"list", "", 0, ListFilter},
    {"map", "*", 0, MapFilter},
    {"max", "case_sensitive,attribute", 0, ExtremeFilter<true>},
    {"min", "case_sensitive,attribute", 0, ExtremeFilter<false>},
    {"reject", "*", 0, SelectFilter<false, false>},
    {"rejectattr", "*", 0, SelectFilter<true, false>},
    {"reverse", "", 0, ReverseFilter},
    {"select", "*", 0, SelectFilter<false, true>},
    {"selectattr", "*", 0, SelectFilter<true, true>},
    {"slice", "slices,fill_with", 1, SliceFilter},
    {"sort", "reverse,case_sensitive,attribute", 0, SortFilter},
    {"sum", "attribute,start", 0, SumFilter},
    {"unique", "case_sensitive,attribute", 0, UniqueFilter},
};

}  // namespace

std::span<const Builtin> ItemFilters() { return kItemFilters; }

}  // namespace lockstep::jinja
