// Filters, tests, methods and global functions: one table each, one row a function.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "text/jinja_value.h"

namespace lockstep::jinja {

// The arguments of a call, matched to the parameters of its row.
struct Call {
  Interpreter& interpreter;
  const Value&
      self;  // the value filtered or tested, the object of a method; none for a global function
  const Args& all;
  std::array<const Value*, 8> bound{};

  bool Has(size_t i) const { return bound[i] != nullptr; }
  // Passed and not none.
  bool Given(size_t i) const { return Has(i) && !bound[i]->IsNone(); }
  const Value& At(size_t i) const { return *bound[i]; }
  Value Or(size_t i, Value fallback) const { return Has(i) ? At(i) : std::move(fallback); }
  bool Flag(size_t i, bool fallback = false) const { return Has(i) ? At(i).Truth() : fallback; }
  // Throws Fault where the argument is no integer, or does not fit 64 bits.
  int64_t Integer(size_t i, int64_t fallback) const;
  // Throws Fault where the argument is no string.
  const std::string& Text(size_t i) const;
};

struct Builtin {
  std::string_view name;
  std::string_view params;  // "first,second"; "*" takes any arguments, which `all` holds
  int required;             // how many parameters must be given
  Value (*run)(Call& call);
};

// The filters, in two tables.
std::span<const Builtin> TextFilters();
std::span<const Builtin> ItemFilters();

// Rows by name, nullptr where there is none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindMethod(const Value& object, std::string_view name);
// Whether Jinja's sandbox hides this attribute: methods that change their object, names that start
// with "_".
bool IsUnsafeAttribute(const Value& object, std::string_view name);

// Matches `args` to the row's parameters and runs it. Throws Fault where they do not match.
Value Run(const Builtin& builtin, Interpreter& interpreter, const Value& self, const Args& args);

// A function or a method with its object, as a value.
Value MakeFunction(const Builtin& builtin, const Value& self);

// What `{% set ns.name = value %}` may assign to.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override { return "<Namespace>"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  void Set(const std::string& name, Value value);
  void Clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
  Charge charge_{128};
};

}  // namespace lockstep::jinja
