// Runs a parsed template.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"

namespace lockstep::jinja {

// The names of one scope; inner scopes see outer ones, and setting a name never reaches an outer
// scope.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  const Value* Find(int symbol) const;
  void Set(int symbol, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> names;
  Charge charge{256};  // about what a scope takes, its first names included
};

class Interpreter {
 public:
  // `now` is what strftime_now prints. All arguments outlive the interpreter, and a Budget is
  // current while it lives.
  Interpreter(const Program& program, const Dict& context, const Limits& limits,
              const std::tm& now);
  ~Interpreter();

  // The text of the whole template. Throws Fault, located.
  std::string Run();

  Value CallValue(const Value& callee, const Args& args);
  // What filters and tests named in arguments (map, select) need. Throw Fault where the name is
  // unknown.
  Value ApplyFilter(const std::string& name, const Value& value, const Args& args);
  bool ApplyTest(const std::string& name, const Value& value, const Args& args);

  std::string CallMacro(const MacroDef& macro, const std::shared_ptr<Scope>& closure,
                        const Args& args);
  // The body of a recursive loop over other items; `depth0` levels of it are open already.
  std::string Recurse(const Stmt& loop, const std::shared_ptr<Scope>& scope, const Value& items,
                      int depth0);

  // Keeps a namespace until the end, so that cycles through it are taken apart.
  void Register(std::shared_ptr<Namespace> object) { namespaces_.push_back(std::move(object)); }
  const std::tm& now() const { return now_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class DepthGuard;
  class ScopeGuard;

  Value Eval(const Expr& expr);
  Value EvalUnlocated(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalSequence(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalSlice(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  Value EvalBinary(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalAndOr(const Expr& expr);
  Value EvalCondition(const Expr& expr);
  Value EvalCall(const Expr& expr, const Value* caller = nullptr);
  Value EvalFilter(const Expr& expr, const Value& value);
  Value EvalTest(const Expr& expr);
  Args EvalArguments(const Expr& expr);
  // Applies the filters of a filter or set block, whose innermost has no operand.
  Value EvalFilterChain(const Expr* chain, const Value& value);

  Flow Exec(const Block& block);
  Flow ExecOne(const Stmt& stmt);
  Flow ExecUnlocated(const Stmt& stmt);
  Flow ExecIf(const Stmt& stmt);
  Flow ExecFor(const Stmt& stmt, const Value& items, int depth0);
  Flow ExecLoopBody(const Stmt& stmt, const Value& items, int depth0);
  Flow ExecScoped(const Stmt& stmt);
  Flow ExecWith(const Stmt& stmt);
  Flow ExecBlockText(const Stmt& stmt);
  void ExecCallBlock(const Stmt& stmt);
  Value FilterItems(const Stmt& stmt, const Value& items);
  Value MakeMacro(const MacroDef& macro);
  void BindParameters(const MacroDef& macro, Scope& scope, const Args& args);

  void Assign(const Expr& target, Value value);
  void Append(std::string_view text);
  // Runs `body` with the output going to a text of its own.
  template <typename Body>
  std::string Capture(Body&& body);

  const Program& program_;
  const Limits& limits_;
  const std::tm& now_;
  std::vector<std::optional<Value>> globals_;  // by symbol: the context, else global functions
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int depth_ = 0;
  // What may be part of a cycle of references.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace lockstep::jinja
