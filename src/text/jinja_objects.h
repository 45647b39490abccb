// The objects that the interpreter itself makes: macros and the `loop` of a for statement.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/jinja_interpreter.h"

namespace lockstep::jinja {

// A macro, or the caller of a call block, with the scope it was written in.
class Macro : public Object {
 public:
  Macro(const MacroDef& macro, std::shared_ptr<Scope> closure)
      : macro_(macro), closure_(std::move(closure)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string Repr() const override { return "<Macro '" + macro_.name + "'>"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Args& args) override {
    return interpreter.CallMacro(macro_, closure_, args);
  }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "name") return Value(macro_.name);
    if (name == "catch_kwargs") return Value(macro_.reads_kwargs);
    if (name == "catch_varargs") return Value(macro_.reads_varargs);
    if (name == "caller") return Value(macro_.reads_caller);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const Parameter& parameter : macro_.parameters) names.emplace_back(parameter.name);
    return Value::Tuple(std::move(names));
  }

 private:
  const MacroDef& macro_;
  std::shared_ptr<Scope> closure_;
};

// The `loop` of a for statement.
class Loop : public Object {
 public:
  Loop(const Stmt& stmt, std::shared_ptr<Scope> scope, Value items, int depth0)
      : stmt_(stmt), scope_(std::move(scope)), items_(std::move(items)), depth0_(depth0) {}

  void Advance() { ++index0_; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string Repr() const override {
    return fmt::format("<LoopContext {}/{}>", index0_ + 1, size());
  }
  bool callable() const override { return true; }
  int depth() const override { return items_.depth(); }
  Value Call(Interpreter& interpreter, const Args& args) override {
    if (!stmt_.recursive) {
      throw Fault("The loop must have the 'recursive' marker to be called recursively.");
    }
    if (args.positional.size() != 1 || !args.named.empty())
      throw Fault("loop() takes one argument");
    return interpreter.Recurse(stmt_, scope_, args.positional[0], depth0_ + 1);
  }

  std::optional<Value> Attribute(std::string_view name) const override {
    int64_t left = size() - index0_;
    if (name == "index0") return Value(index0_);
    if (name == "index") return Value(index0_ + 1);
    if (name == "revindex0") return Value(left - 1);
    if (name == "revindex") return Value(left);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(left == 1);
    if (name == "length") return Value(size());
    if (name == "depth0") return Value(depth0_);
    if (name == "depth") return Value(depth0_ + 1);
    if (name == "previtem") return Neighbour(index0_ - 1, "there is no previous item");
    if (name == "nextitem") return Neighbour(index0_ + 1, "there is no next item");
    if (name == "cycle" || name == "changed") return Value(Method(name == "cycle"));
    return std::nullopt;
  }

 private:
  class BoundMethod : public Object {
   public:
    BoundMethod(std::shared_ptr<Loop> loop, bool cycle) : loop_(std::move(loop)), cycle_(cycle) {}
    std::string_view type_name() const override { return "method"; }
    std::string Repr() const override { return "<bound method of LoopContext>"; }
    bool callable() const override { return true; }
    int depth() const override { return loop_->depth(); }
    Value Call(Interpreter&, const Args& args) override {
      return cycle_ ? loop_->Cycle(args) : Value(loop_->Changed(args));
    }

   private:
    std::shared_ptr<Loop> loop_;
    bool cycle_;
  };

  int64_t size() const { return static_cast<int64_t>(items_.list().items.size()); }
  Value Neighbour(int64_t index, const char* otherwise) const {
    if (index < 0 || index >= size()) return Value::MakeUndefined(otherwise);
    return items_.list().items[index];
  }
  std::shared_ptr<Object> Method(bool cycle) const {
    auto self = std::const_pointer_cast<Object>(shared_from_this());
    return std::make_shared<BoundMethod>(std::static_pointer_cast<Loop>(self), cycle);
  }
  Value Cycle(const Args& args) const {
    if (args.positional.empty()) throw Fault("no items for cycling given");
    return args.positional[index0_ % args.positional.size()];
  }
  bool Changed(const Args& args) {
    bool same = last_ && last_->size() == args.positional.size() &&
                std::equal(last_->begin(), last_->end(), args.positional.begin(), Equals);
    // Only texts and numbers are kept: anything else might hold this loop.
    for (const Value& value : args.positional) {
      if (!value.IsString() && !value.IsNumber() && !value.IsNone() && !value.IsUndefined()) {
        throw Fault(
            fmt::format("loop.changed() cannot compare a value of type {}", value.type_name()));
      }
    }
    if (!same) last_ = args.positional;
    return !same;
  }

  const Stmt& stmt_;
  std::shared_ptr<Scope> scope_;
  Value items_;  // a list
  int depth0_;
  int64_t index0_ = -1;
  std::optional<std::vector<Value>> last_;
};

}  // namespace lockstep::jinja
