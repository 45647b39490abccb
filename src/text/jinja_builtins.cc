#include "text/jinja_builtins.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja_interpreter.h"

namespace lockstep::jinja {
namespace {

// A row of a table with its object, as a value.
class Function : public Object {
 public:
  Function(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string Repr() const override { return fmt::format("<function {}>", builtin_.name); }
  bool callable() const override { return true; }
  int depth() const override { return self_.depth(); }
  Value Call(Interpreter& interpreter, const Args& args) override {
    return Run(builtin_, interpreter, self_, args);
  }

 private:
  const Builtin& builtin_;
  Value self_;
  Charge charge_{64};
};

// The place of `name` in a comma-separated list; nullopt where it is not there.
std::optional<size_t> PlaceOf(std::string_view name, std::string_view params) {
  for (size_t place = 0; !params.empty(); ++place) {
    size_t end = std::min(params.find(','), params.size());
    if (params.substr(0, end) == name) return place;
    params.remove_prefix(std::min(end + 1, params.size()));
  }
  return std::nullopt;
}

size_t CountParams(std::string_view params) {
  return params.empty() ? 0 : 1 + std::count(params.begin(), params.end(), ',');
}

}  // namespace

int64_t Call::Integer(size_t i, int64_t fallback) const {
  if (!Has(i)) return fallback;
  const Value& value = At(i);
  if (value.IsUndefined()) throw Fault(value.undefined_message());
  if (!value.IsInt() && !value.IsBool()) {
    throw Fault(fmt::format("'{}' object cannot be interpreted as an integer", value.type_name()));
  }
  if (value.integer() > INT64_MAX || value.integer() < INT64_MIN)
    throw Fault("an integer is out of range");
  return static_cast<int64_t>(value.integer());
}

const std::string& Call::Text(size_t i) const {
  if (At(i).IsUndefined()) throw Fault(At(i).undefined_message());
  if (!At(i).IsString()) throw Fault(fmt::format("expected a string, found {}", At(i).type_name()));
  return At(i).text();
}

Value Run(const Builtin& builtin, Interpreter& interpreter, const Value& self, const Args& args) {
  Call call{interpreter, self, args};
  if (builtin.params == "*") return builtin.run(call);
  size_t count = CountParams(builtin.params);
  if (args.positional.size() > count) {
    throw Fault(fmt::format("{}() takes at most {} argument(s) ({} given)", builtin.name, count,
                            args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) call.bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    auto place = PlaceOf(name, builtin.params);
    if (!place) {
      throw Fault(fmt::format("{}() got an unexpected keyword argument '{}'", builtin.name,
                              Printable(name, 60)));
    }
    if (call.bound[*place] != nullptr) {
      throw Fault(fmt::format("{}() got multiple values for argument '{}'", builtin.name, name));
    }
    call.bound[*place] = &value;
  }
  for (int i = 0; i < builtin.required; ++i) {
    if (!call.Has(i))
      throw Fault(fmt::format("{}() needs {} argument(s)", builtin.name, builtin.required));
  }
  return builtin.run(call);
}

const Builtin* FindFilter(std::string_view name) {
  for (std::span<const Builtin> table : {TextFilters(), ItemFilters()}) {
    for (const Builtin& row : table) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

Value MakeFunction(const Builtin& builtin, const Value& self) {
  return Value(std::make_shared<Function>(builtin, self));
}

std::optional<Value> Namespace::Attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(const std::string& name, Value value) {
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

}  // namespace lockstep::jinja
