// The parsed template: expressions and statements, each with its place in the source.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

struct Builtin;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Argument {
  enum class Kind { kPositional, kNamed, kSplat, kNamedSplat };
  Kind kind;
  std::string name;  // of kNamed
  ExprPtr value;
};

struct Expr {
  enum class Kind {
    kConst,      // constant
    kName,       // symbol
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], each bound may be null
    kCall,       // parts[0](arguments)
    kFilter,  // parts[0] | name(arguments); parts[0] is null at the head of a filter or set block
    kTest,    // parts[0] is name(arguments)
    kList,    // parts
    kTuple,   // parts
    kDict,    // parts: key, value, key, value ...
    kNegate,
    kPlus,
    kNot,
    kBinary,   // parts[0] ops[0] parts[1] ops[1] parts[2] ..., grouped from the left
    kCompare,  // a chain, as Python's
    kConcat,   // parts joined by ~
    kAnd,
    kOr,
    kCondition,  // parts[1] if parts[0] else parts[2], which may be null
  };

  Kind kind;
  int line;
  int column;
  int depth = 1;  // expressions inside each other, this one included
  Value constant;
  std::string name;
  int symbol = -1;                   // of kName: index into Program::symbols
  const Builtin* builtin = nullptr;  // of kFilter and kTest; null where the name is unknown
  std::vector<ExprPtr> parts;
  std::vector<Op> ops;
  std::vector<Argument> arguments;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  int symbol;
  ExprPtr fallback;  // null where there is none
};

// A macro or the body of a call block.
struct MacroDef {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool reads_caller = false;  // whether the body names these, so that a call may pass them
  bool reads_varargs = false;
  bool reads_kwargs = false;
};

struct Branch {
  ExprPtr test;  // null for else
  Block body;
};

struct Stmt {
  enum class Kind {
    kText,         // text
    kOutput,       // expr
    kIf,           // branches
    kFor,          // target in expr if test: body, else branches[0].body
    kSet,          // target = expr
    kSetBlock,     // target = body, through the filters of expr
    kMacro,        // macro, bound to symbol
    kCallBlock,    // expr is the call, macro its caller
    kFilterBlock,  // body through the filters of expr
    kWith,         // bindings: body
    kScope,        // body, in a scope of its own
    kBreak,
    kContinue,
  };

  Kind kind;
  int line;
  int column;
  std::string text;
  int symbol = -1;
  // A name, a tuple of targets, or an attribute of a name.
  ExprPtr target;
  ExprPtr expr;
  ExprPtr test;
  bool recursive = false;
  Block body;
  std::vector<Branch> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;
  std::unique_ptr<MacroDef> macro;
};

// Names that the interpreter itself binds.
enum WellKnownSymbol { kLoopSymbol, kCallerSymbol, kVarargsSymbol, kKwargsSymbol };

struct Program {
  std::vector<std::string> symbols;  // the well-known ones first
  std::set<std::string> reads;  // names read where no loop, parameter or with-binding gives them
  Block body;
};

}  // namespace lockstep::jinja
