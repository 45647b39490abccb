#include "text/jinja_interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"

namespace lockstep::jinja {
const Value* Scope::Find(int symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, value] : scope->names) {
      if (name == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(int symbol, Value value) {
  for (auto& [name, old] : names) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(symbol, std::move(value));
}

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > interpreter_.limits_.depth) {
      --interpreter_.depth_;
      throw Fault(
          fmt::format("the template runs deeper than {} levels", interpreter_.limits_.depth));
    }
  }
  ~DepthGuard() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

template <typename Body>
std::string Interpreter::Capture(Body&& body) {
  struct Restore {
    Interpreter& interpreter;
    std::string* outer;
    ~Restore() { interpreter.out_ = outer; }
  };
  std::string text;
  Restore restore{*this, std::exchange(out_, &text)};
  body();
  return text;
}

Interpreter::Interpreter(const Program& program, const Dict& context, const Limits& limits,
                         const std::tm& now)
    : program_(program), limits_(limits), now_(now), scope_(std::make_shared<Scope>(nullptr)) {
  for (const std::string& name : program.symbols) {
    if (const Value* value = context.Find(std::string_view(name))) {
      globals_.emplace_back(*value);
    } else if (const Builtin* builtin = FindGlobal(name)) {
      globals_.emplace_back(MakeFunction(*builtin, Value()));
    } else {
      globals_.emplace_back(std::nullopt);
    }
  }
}

Interpreter::~Interpreter() {
  // Values hold each other only through these: emptied one by one, nothing is left that could nest
  // or go in circles.
  for (const auto& scope : captured_) scope->names.clear();
  for (const auto& object : namespaces_) object->Clear();
}

std::string Interpreter::Run() {
  return Capture([&] { Exec(program_.body); });
}

void Interpreter::Append(std::string_view text) {
  if (text.size() > limits_.output_bytes - std::min(out_->size(), limits_.output_bytes)) {
    throw Fault(fmt::format("the template prints more than {} bytes", limits_.output_bytes));
  }
  Budget::Spend(text.size() / 64);
  *out_ += text;
}

// ---- expressions

Value Interpreter::Eval(const Expr& expr) {
  try {
    DepthGuard guard(*this);
    Budget::Spend(1);
    return EvalUnlocated(expr);
  } catch (Fault& fault) {
    fault.Locate(expr.line, expr.column);
    throw;
  }
}

Value Interpreter::EvalUnlocated(const Expr& expr) {
  using Kind = Expr::Kind;
  switch (expr.kind) {
    case Kind::kConst:
      return expr.constant;
    case Kind::kName:
      return EvalName(expr);
    case Kind::kAttribute:
      return GetAttribute(Eval(*expr.parts[0]), expr.name);
    case Kind::kItem: {
      Value object = Eval(*expr.parts[0]);
      return GetItem(object, Eval(*expr.parts[1]));
    }
    case Kind::kSlice:
      return EvalSlice(expr);
    case Kind::kCall:
      return EvalCall(expr);
    case Kind::kFilter:
      return EvalFilter(expr, Eval(*expr.parts[0]));
    case Kind::kTest:
      return EvalTest(expr);
    case Kind::kList:
    case Kind::kTuple:
      return EvalSequence(expr);
    case Kind::kDict:
      return EvalDict(expr);
    case Kind::kNegate:
      return Negate(Eval(*expr.parts[0]));
    case Kind::kPlus:
      return Plus(Eval(*expr.parts[0]));
    case Kind::kNot:
      return !Eval(*expr.parts[0]).Truth();
    case Kind::kBinary:
      return EvalBinary(expr);
    case Kind::kCompare:
      return EvalCompare(expr);
    case Kind::kConcat:
      return EvalConcat(expr);
    case Kind::kAnd:
    case Kind::kOr:
      return EvalAndOr(expr);
    case Kind::kCondition:
      return EvalCondition(expr);
  }
  return Value();
}

Value Interpreter::EvalName(const Expr& expr) {
  if (const Value* found = scope_->Find(expr.symbol)) return *found;
  if (globals_[expr.symbol]) return *globals_[expr.symbol];
  return Value::MakeUndefined("'" + Printable(expr.name, 60) + "' is undefined");
}

Value Interpreter::EvalSequence(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const ExprPtr& part : expr.parts) items.push_back(Eval(*part));
  return Value::MakeList(std::move(items),
                         expr.kind == Expr::Kind::kList ? Sequence::kList : Sequence::kTuple);
}

Value Interpreter::EvalDict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    Value key = Eval(*expr.parts[i]);
    items.emplace_back(std::move(key), Eval(*expr.parts[i + 1]));
  }
  return Value::MakeDict(std::move(items));
}

Value Interpreter::EvalSlice(const Expr& expr) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (expr.parts[i] != nullptr) parts[i] = Eval(*expr.parts[i]);
  }
  return GetSlice(parts[0], parts[1], parts[2], parts[3]);
}

Value Interpreter::EvalConcat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& part : expr.parts) {
    text += Eval(*part).Str();
    Budget::CheckBytes(text.size());
  }
  return text;
}

Value Interpreter::EvalBinary(const Expr& expr) {
  Value left = Eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i)
    left = Arithmetic(expr.ops[i], left, Eval(*expr.parts[i + 1]));
  return left;
}

Value Interpreter::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Eval(*expr.parts[i + 1]);
    if (!Compare(expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::EvalAndOr(const Expr& expr) {
  bool stop_at = expr.kind == Expr::Kind::kOr;
  Value value;
  for (const ExprPtr& part : expr.parts) {
    value = Eval(*part);
    if (value.Truth() == stop_at) break;
  }
  return value;
}

Value Interpreter::EvalCondition(const Expr& expr) {
  if (Eval(*expr.parts[0]).Truth()) return Eval(*expr.parts[1]);
  if (expr.parts[2] != nullptr) return Eval(*expr.parts[2]);
  return Value::MakeUndefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      expr.line));
}

Args Interpreter::EvalArguments(const Expr& expr) {
  using Kind = Argument::Kind;
  Args args;
  for (const Argument& argument : expr.arguments) {
    Value value = Eval(*argument.value);
    if (argument.kind == Kind::kPositional) {
      args.positional.push_back(std::move(value));
    } else if (argument.kind == Kind::kNamed) {
      args.named.emplace_back(argument.name, std::move(value));
    } else if (argument.kind == Kind::kSplat) {
      for (Value& item : Items(value)) args.positional.push_back(std::move(item));
    } else {
      if (!value.IsDict())
        throw Fault("argument after ** must be a mapping, not " + std::string(value.type_name()));
      for (const auto& [key, item] : value.dict().items) {
        if (!key.IsString()) throw Fault("keywords must be strings");
        args.named.emplace_back(key.text(), item);
      }
    }
  }
  return args;
}

Value Interpreter::EvalCall(const Expr& expr, const Value* caller) {
  const Expr& target = *expr.parts[0];
  Value object;
  Value callee;
  const Builtin* method = nullptr;
  if (target.kind == Expr::Kind::kAttribute) {
    // A method called at once needs no value of its own.
    object = Eval(*target.parts[0]);
    method = FindMethod(object, target.name);
    if (method == nullptr) callee = GetAttribute(object, target.name);
  } else {
    callee = Eval(target);
  }
  Args args = EvalArguments(expr);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return method != nullptr ? jinja::Run(*method, *this, object, args) : CallValue(callee, args);
}

Value Interpreter::CallValue(const Value& callee, const Args& args) {
  if (callee.IsUndefined()) throw Fault(callee.undefined_message());
  if (!callee.IsCallable())
    throw Fault(fmt::format("'{}' object is not callable", callee.type_name()));
  DepthGuard guard(*this);
  return callee.object()->Call(*this, args);
}

Value Interpreter::EvalFilter(const Expr& expr, const Value& value) {
  if (expr.builtin == nullptr) throw Fault("no filter named '" + Printable(expr.name, 40) + "'");
  return jinja::Run(*expr.builtin, *this, value, EvalArguments(expr));
}

Value Interpreter::EvalFilterChain(const Expr* chain, const Value& value) {
  if (chain == nullptr) return value;
  return EvalFilter(*chain, EvalFilterChain(chain->parts[0].get(), value));
}

Value Interpreter::EvalTest(const Expr& expr) {
  if (expr.builtin == nullptr) throw Fault("no test named '" + Printable(expr.name, 40) + "'");
  Value value = Eval(*expr.parts[0]);
  return jinja::Run(*expr.builtin, *this, value, EvalArguments(expr));
}

Value Interpreter::ApplyFilter(const std::string& name, const Value& value, const Args& args) {
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) throw Fault("no filter named '" + Printable(name, 40) + "'");
  DepthGuard guard(*this);
  return jinja::Run(*filter, *this, value, args);
}

bool Interpreter::ApplyTest(const std::string& name, const Value& value, const Args& args) {
  const Builtin* test = FindTest(name);
  if (test == nullptr) throw Fault("no test named '" + Printable(name, 40) + "'");
  return jinja::Run(*test, *this, value, args).Truth();
}

// ---- statements

Interpreter::Flow Interpreter::Exec(const Block& block) {
  for (const auto& stmt : block) {
    Flow flow = ExecOne(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecOne(const Stmt& stmt) {
  try {
    DepthGuard guard(*this);
    Budget::Spend(1);
    return ExecUnlocated(stmt);
  } catch (Fault& fault) {
    fault.Locate(stmt.line, stmt.column);
    throw;
  }
}

Interpreter::Flow Interpreter::ExecUnlocated(const Stmt& stmt) {
  using Kind = Stmt::Kind;
  switch (stmt.kind) {
    case Kind::kText:
      Append(stmt.text);
      break;
    case Kind::kOutput:
      Append(Eval(*stmt.expr).Str());
      break;
    case Kind::kIf:
      return ExecIf(stmt);
    case Kind::kFor:
      return ExecFor(stmt, Eval(*stmt.expr), 0);
    case Kind::kSet:
      Assign(*stmt.target, Eval(*stmt.expr));
      break;
    case Kind::kMacro:
      scope_->Set(stmt.symbol, MakeMacro(*stmt.macro));
      break;
    case Kind::kCallBlock:
      ExecCallBlock(stmt);
      break;
    case Kind::kSetBlock:
    case Kind::kFilterBlock:
      return ExecBlockText(stmt);
    case Kind::kWith:
      return ExecWith(stmt);
    case Kind::kScope:
      return ExecScoped(stmt);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.test == nullptr || Eval(*branch.test).Truth()) return Exec(branch.body);
  }
  return Flow::kNormal;
}

Value Interpreter::FilterItems(const Stmt& stmt, const Value& items) {
  std::vector<Value> kept;
  for (Value& item : Items(items)) {
    if (stmt.test != nullptr) {
      ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
      Assign(*stmt.target, item);
      if (!Eval(*stmt.test).Truth()) continue;
    }
    kept.push_back(std::move(item));
  }
  return Value::MakeList(std::move(kept));
}

Interpreter::Flow Interpreter::ExecFor(const Stmt& stmt, const Value& items, int depth0) {
  Value list = FilterItems(stmt, items);
  if (!list.list().items.empty()) return ExecLoopBody(stmt, list, depth0);
  if (stmt.branches.empty()) return Flow::kNormal;
  ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  return Exec(stmt.branches[0].body);
}

Interpreter::Flow Interpreter::ExecLoopBody(const Stmt& stmt, const Value& items, int depth0) {
  if (stmt.recursive)
    captured_.push_back(scope_);  // the loop, which may be kept somewhere, holds it
  auto loop = std::make_shared<Loop>(stmt, stmt.recursive ? scope_ : nullptr, items, depth0);
  for (const Value& item : items.list().items) {
    Budget::Spend(1);
    loop->Advance();
    ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
    scope_->Set(kLoopSymbol, Value(std::shared_ptr<Object>(loop)));
    Assign(*stmt.target, item);
    if (Exec(stmt.body) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

std::string Interpreter::Recurse(const Stmt& loop, const std::shared_ptr<Scope>& scope,
                                 const Value& items, int depth0) {
  ScopeGuard guard(*this, scope);
  return Capture([&] { ExecFor(loop, items, depth0); });
}

Interpreter::Flow Interpreter::ExecScoped(const Stmt& stmt) {
  ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  return Exec(stmt.body);
}

Interpreter::Flow Interpreter::ExecWith(const Stmt& stmt) {
  std::vector<Value> values;
  for (const auto& binding : stmt.bindings) values.push_back(Eval(*binding.second));
  ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  for (size_t i = 0; i < values.size(); ++i) Assign(*stmt.bindings[i].first, std::move(values[i]));
  return Exec(stmt.body);
}

Interpreter::Flow Interpreter::ExecBlockText(const Stmt& stmt) {
  Flow flow = Flow::kNormal;
  std::string text = Capture([&] { flow = ExecScoped(stmt); });
  if (flow != Flow::kNormal) return flow;
  Value value = EvalFilterChain(stmt.expr.get(), std::move(text));
  if (stmt.kind == Stmt::Kind::kSetBlock) {
    Assign(*stmt.target, std::move(value));
  } else {
    Append(value.Str());
  }
  return Flow::kNormal;
}

void Interpreter::ExecCallBlock(const Stmt& stmt) {
  Value caller = MakeMacro(*stmt.macro);
  Append(EvalCall(*stmt.expr, &caller).Str());
}

Value Interpreter::MakeMacro(const MacroDef& macro) {
  if (captured_.empty() || captured_.back() != scope_) captured_.push_back(scope_);
  return Value(std::make_shared<Macro>(macro, scope_));
}

void Interpreter::BindParameters(const MacroDef& macro, Scope& scope, const Args& args) {
  std::vector<std::pair<std::string, Value>> named = args.named;
  auto take = [&](std::string_view name) -> std::optional<Value> {
    for (size_t i = 0; i < named.size(); ++i) {
      if (named[i].first != name) continue;
      Value value = std::move(named[i].second);
      named.erase(named.begin() + static_cast<ptrdiff_t>(i));
      return value;
    }
    return std::nullopt;
  };
  bool caller_is_parameter = false;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    caller_is_parameter |= parameter.name == "caller";
    std::optional<Value> value =
        i < args.positional.size() ? args.positional[i] : take(parameter.name);
    if (!value && parameter.fallback != nullptr) value = Eval(*parameter.fallback);
    if (!value)
      value = Value::MakeUndefined("parameter '" + Printable(parameter.name, 60) +
                                   "' was not provided");
    scope.Set(parameter.symbol, std::move(*value));
  }
  if (macro.reads_caller && !caller_is_parameter) {
    scope.Set(kCallerSymbol, take("caller").value_or(Value::MakeUndefined("No caller defined")));
  }
  if (macro.reads_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : named) rest.emplace_back(name, value);
    scope.Set(kKwargsSymbol, Value::MakeDict(std::move(rest)));
  } else if (!named.empty()) {
    throw Fault(fmt::format("macro '{}' takes no keyword argument '{}'", Printable(macro.name, 60),
                            Printable(named[0].first, 60)));
  }
  size_t taken = std::min(macro.parameters.size(), args.positional.size());
  if (macro.reads_varargs) {
    scope.Set(kVarargsSymbol, Value::Tuple({args.positional.begin() + static_cast<ptrdiff_t>(taken),
                                            args.positional.end()}));
  } else if (args.positional.size() > taken) {
    throw Fault(fmt::format("macro '{}' takes not more than {} argument(s)",
                            Printable(macro.name, 60), macro.parameters.size()));
  }
}

std::string Interpreter::CallMacro(const MacroDef& macro, const std::shared_ptr<Scope>& closure,
                                   const Args& args) {
  ScopeGuard guard(*this, std::make_shared<Scope>(closure));
  BindParameters(macro, *scope_, args);
  return Capture([&] { Exec(macro.body); });
}

void Interpreter::Assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::kName) return scope_->Set(target.symbol, std::move(value));
  if (target.kind == Expr::Kind::kAttribute) {
    Value owner = EvalName(*target.parts[0]);
    auto space = owner.IsObject() ? std::dynamic_pointer_cast<Namespace>(owner.object()) : nullptr;
    if (space == nullptr) throw Fault("cannot assign attribute on non-namespace object");
    return space->Set(target.name, std::move(value));
  }
  if (!IsIterable(value))
    throw Fault(fmt::format("cannot unpack non-iterable {} object", value.type_name()));
  std::vector<Value> items = Items(value);
  if (items.size() != target.parts.size()) {
    throw Fault(
        fmt::format("cannot unpack {} values into {} names", items.size(), target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.parts[i], std::move(items[i]));
}

}  // namespace lockstep::jinja
