// Expressions of the template language, and what the parsing of statements shares with it. For
// jinja_parser.cc only.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"
#include "text/jinja_lexer.h"

namespace lockstep::jinja {

class ExprParser {
 protected:
  static constexpr int kMaxNesting =
      150;  // brackets, unary operators and statements inside each other
  static constexpr int kMaxExprDepth =
      250;  // of the tree, which postfix chains deepen without nesting

  using Names = std::initializer_list<std::string_view>;
  using Type = Token::Type;

  explicit ExprParser(std::string_view source) : tokens_(Tokenize(source)) {
    for (std::string_view name : {"loop", "caller", "varargs", "kwargs"}) Symbol(std::string(name));
  }

  // ---- tokens

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& Next() {
    const Token& token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool SkipName(std::string_view name) {
    if (!Peek().IsName(name)) return false;
    Next();
    return true;
  }
  bool SkipOp(std::string_view op) {
    if (!Peek().Is(op)) return false;
    Next();
    return true;
  }
  void ExpectOp(std::string_view op) {
    if (!SkipOp(op)) Fail(Peek(), fmt::format("expected '{}', found {}", op, Peek().Describe()));
  }
  const Token& Expect(Type type, std::string_view what) {
    if (Peek().type != type)
      Fail(Peek(), fmt::format("expected {}, found {}", what, Peek().Describe()));
    return Next();
  }
  [[noreturn]] static void Fail(const Token& token, std::string message) {
    Fault fault(std::move(message));
    fault.Locate(token.line, token.column);
    throw fault;
  }

  // Counts one level for as long as it lives.
  class Nest {
   public:
    explicit Nest(ExprParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        Fail(parser_.Peek(), fmt::format("nests deeper than {}", kMaxNesting));
      }
    }
    ~Nest() { --parser_.nesting_; }

   private:
    ExprParser& parser_;
  };

  // ---- nodes

  int Symbol(const std::string& name) {
    auto [found, fresh] = symbol_of_.try_emplace(name, static_cast<int>(program_.symbols.size()));
    if (fresh) program_.symbols.push_back(name);
    return found->second;
  }
  static ExprPtr Make(Expr::Kind kind, const Token& at) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = at.line;
    expr->column = at.column;
    return expr;
  }
  template <typename... Parts>
  static ExprPtr Make(Expr::Kind kind, const Token& at, Parts... parts) {
    ExprPtr expr = Make(kind, at);
    (Add(expr, std::move(parts)), ...);
    return expr;
  }
  static void Deepen(const ExprPtr& expr, const ExprPtr& part) {
    if (part == nullptr) return;
    expr->depth = std::max(expr->depth, part->depth + 1);
    if (expr->depth <= kMaxExprDepth) return;
    Fault fault(fmt::format("an expression nests deeper than {}", kMaxExprDepth));
    fault.Locate(expr->line, expr->column);
    throw fault;
  }
  static void Add(const ExprPtr& expr, ExprPtr part) {
    Deepen(expr, part);
    expr->parts.push_back(std::move(part));
  }
  static std::unique_ptr<Stmt> MakeStmt(Stmt::Kind kind, const Token& at) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = at.line;
    stmt->column = at.column;
    return stmt;
  }

  // ---- names

  ExprPtr LoadName(const Token& token) {
    ExprPtr expr = Make(Expr::Kind::kName, token);
    expr->name = token.text;
    expr->symbol = Symbol(token.text);
    for (MacroDef* macro : macros_) {
      macro->reads_caller |= token.text == "caller";
      macro->reads_varargs |= token.text == "varargs";
      macro->reads_kwargs |= token.text == "kwargs";
    }
    if (std::find(bound_.begin(), bound_.end(), token.text) == bound_.end())
      program_.reads.insert(token.text);
    return expr;
  }
  void Bind(const Expr& target) {
    if (target.kind == Expr::Kind::kName) bound_.push_back(target.name);
    for (const ExprPtr& part : target.parts) Bind(*part);
  }

  bool AtName(Names names) const {
    return Peek().type == Type::kName &&
           std::find(names.begin(), names.end(), Peek().text) != names.end();
  }

  // ---- expressions

  enum class Conditions { kNo, kYes };

  bool AtTupleEnd(std::string_view end_name) const {
    return Peek().type == Type::kVariableEnd || Peek().type == Type::kBlockEnd || Peek().Is(")") ||
           (!end_name.empty() && Peek().IsName(end_name));
  }

  // One expression, or several with commas between them as a tuple; nothing at all is one only
  // inside parentheses.
  ExprPtr ParseTuple(Conditions conditions = Conditions::kYes, std::string_view end_name = "",
                     bool parentheses = false) {
    const Token& first = Peek();
    std::vector<ExprPtr> items;
    bool tuple = false;
    while (!AtTupleEnd(end_name)) {
      items.push_back(conditions == Conditions::kYes ? ParseExpression() : ParseOr());
      if (!SkipOp(",")) break;
      tuple = true;
    }
    if (!tuple && !items.empty()) return std::move(items[0]);
    if (!tuple && !parentheses) {
      Fail(first, fmt::format("expected an expression, found {}", first.Describe()));
    }
    ExprPtr expr = Make(Expr::Kind::kTuple, first);
    for (ExprPtr& item : items) Add(expr, std::move(item));
    return expr;
  }

  // While one lives, unknown filters and tests are errors of the rendering only.
  class SoftGuard {
   public:
    explicit SoftGuard(ExprParser& parser) : parser_(parser) { ++parser_.soft_; }
    ~SoftGuard() { --parser_.soft_; }

   private:
    ExprParser& parser_;
  };

  ExprPtr ParseExpression() {
    Nest nest(*this);
    const Token& first = Peek();
    size_t unknown = unknown_.size();
    ExprPtr expr = ParseOr();
    while (SkipName("if")) {
      unknown_.resize(unknown);  // they stand in a condition after all
      SoftGuard soft(*this);
      ExprPtr test = ParseOr();
      ExprPtr otherwise = SkipName("else") ? ParseExpression() : nullptr;
      expr = Make(Expr::Kind::kCondition, first, std::move(test), std::move(expr),
                  std::move(otherwise));
    }
    return expr;
  }

  ExprPtr ParseOr() {
    Nest nest(*this);
    const Token& first = Peek();
    ExprPtr expr = ParseAnd();
    if (!Peek().IsName("or")) return expr;
    expr = Make(Expr::Kind::kOr, first, std::move(expr));
    while (SkipName("or")) Add(expr, ParseAnd());
    return expr;
  }
  ExprPtr ParseAnd() {
    const Token& first = Peek();
    ExprPtr expr = ParseNot();
    if (!Peek().IsName("and")) return expr;
    expr = Make(Expr::Kind::kAnd, first, std::move(expr));
    while (SkipName("and")) Add(expr, ParseNot());
    return expr;
  }
  ExprPtr ParseNot() {
    Nest nest(*this);
    const Token& first = Peek();
    if (SkipName("not")) return Make(Expr::Kind::kNot, first, ParseNot());
    return ParseCompare();
  }

  struct OpRow {
    std::string_view text;
    Op op;
  };
  static constexpr OpRow kCompareOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                          {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
  static constexpr OpRow kSums[] = {{"+", Op::kAdd}, {"-", Op::kSub}};
  static constexpr OpRow kProducts[] = {
      {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};
  static constexpr OpRow kPowers[] = {{"**", Op::kPow}};

  template <size_t N>
  std::optional<Op> SkipAny(const OpRow (&rows)[N]) {
    for (const OpRow& row : rows) {
      if (SkipOp(row.text)) return row.op;
    }
    return std::nullopt;
  }
  std::optional<Op> SkipCompareOp() {
    if (auto op = SkipAny(kCompareOps)) return op;
    if (SkipName("in")) return Op::kIn;
    if (!Peek().IsName("not") || !Peek(1).IsName("in")) return std::nullopt;
    Next();
    Next();
    return Op::kNotIn;
  }
  ExprPtr ParseCompare() {
    const Token& first = Peek();
    ExprPtr expr = ParseSum();
    ExprPtr chain;
    while (auto op = SkipCompareOp()) {
      if (chain == nullptr) chain = Make(Expr::Kind::kCompare, first, std::move(expr));
      chain->ops.push_back(*op);
      Add(chain, ParseSum());
    }
    return chain != nullptr ? std::move(chain) : std::move(expr);
  }

  // Operators of one rank, grouped from the left, with operands of the next rank.
  template <size_t N>
  ExprPtr ParseBinary(const OpRow (&rows)[N], ExprPtr (ExprParser::*operand)()) {
    const Token& first = Peek();
    ExprPtr expr = (this->*operand)();
    ExprPtr chain;
    while (auto op = SkipAny(rows)) {
      if (chain == nullptr) chain = Make(Expr::Kind::kBinary, first, std::move(expr));
      chain->ops.push_back(*op);
      Add(chain, (this->*operand)());
    }
    return chain != nullptr ? std::move(chain) : std::move(expr);
  }
  ExprPtr ParseSum() { return ParseBinary(kSums, &ExprParser::ParseConcat); }
  ExprPtr ParseConcat() {
    const Token& first = Peek();
    ExprPtr expr = ParseProduct();
    if (!Peek().Is("~")) return expr;
    expr = Make(Expr::Kind::kConcat, first, std::move(expr));
    while (SkipOp("~")) Add(expr, ParseProduct());
    return expr;
  }
  ExprPtr ParseProduct() { return ParseBinary(kProducts, &ExprParser::ParsePower); }
  ExprPtr ParsePower() { return ParseBinary(kPowers, &ExprParser::ParseUnary); }
  ExprPtr ParseUnary() { return ParseFiltersAndTests(ParseSigned()); }

  // A filter behind a sign takes the signed value, a call or subscript too, as in Jinja.
  ExprPtr ParseSigned() {
    Nest nest(*this);
    const Token& first = Peek();
    if (SkipOp("-")) return ParsePostfix(Make(Expr::Kind::kNegate, first, ParseSigned()));
    if (SkipOp("+")) return ParsePostfix(Make(Expr::Kind::kPlus, first, ParseSigned()));
    return ParsePostfix(ParsePrimary());
  }

  ExprPtr ParsePrimary() {
    const Token& token = Next();
    switch (token.type) {
      case Type::kName:
        return ParseName(token);
      case Type::kString: {
        ExprPtr expr = Make(Expr::Kind::kConst, token);
        std::string text = token.text;
        while (Peek().type == Type::kString) text += Next().text;
        expr->constant = Value(std::move(text));
        return expr;
      }
      case Type::kInteger:
      case Type::kFloat: {
        ExprPtr expr = Make(Expr::Kind::kConst, token);
        expr->constant = token.value;
        return expr;
      }
      default:
        break;
    }
    if (token.Is("(")) {
      ExprPtr expr = ParseTuple(Conditions::kYes, "", /*parentheses=*/true);
      ExpectOp(")");
      return expr;
    }
    if (token.Is("[")) return ParseList(token);
    if (token.Is("{")) return ParseDict(token);
    Fail(token, fmt::format("expected an expression, found {}", token.Describe()));
  }
  ExprPtr ParseName(const Token& token) {
    const std::string& name = token.text;
    bool is_true = name == "true" || name == "True";
    if (is_true || name == "false" || name == "False") {
      ExprPtr expr = Make(Expr::Kind::kConst, token);
      expr->constant = Value(is_true);
      return expr;
    }
    if (name == "none" || name == "None") return Make(Expr::Kind::kConst, token);
    return LoadName(token);
  }
  ExprPtr ParseList(const Token& open) {
    ExprPtr expr = Make(Expr::Kind::kList, open);
    while (!Peek().Is("]")) {
      Add(expr, ParseExpression());
      if (!SkipOp(",")) break;
    }
    ExpectOp("]");
    return expr;
  }
  ExprPtr ParseDict(const Token& open) {
    ExprPtr expr = Make(Expr::Kind::kDict, open);
    while (!Peek().Is("}")) {
      Add(expr, ParseExpression());
      ExpectOp(":");
      Add(expr, ParseExpression());
      if (!SkipOp(",")) break;
    }
    ExpectOp("}");
    return expr;
  }

  ExprPtr ParsePostfix(ExprPtr expr) {
    while (true) {
      const Token& token = Peek();
      if (SkipOp(".")) {
        expr = ParseDot(token, std::move(expr));
      } else if (SkipOp("[")) {
        expr = ParseSubscript(token, std::move(expr));
      } else if (token.Is("(")) {
        expr = ParseCall(std::move(expr));
      } else {
        return expr;
      }
    }
  }
  ExprPtr ParseDot(const Token& dot, ExprPtr object) {
    const Token& token = Next();
    if (token.type == Type::kName) {
      ExprPtr expr = Make(Expr::Kind::kAttribute, dot, std::move(object));
      expr->name = token.text;
      return expr;
    }
    if (token.type != Type::kInteger) {
      Fail(token, fmt::format("expected a name or number, found {}", token.Describe()));
    }
    ExprPtr index = Make(Expr::Kind::kConst, token);
    index->constant = token.value;
    return Make(Expr::Kind::kItem, dot, std::move(object), std::move(index));
  }
  ExprPtr ParseSubscript(const Token& bracket, ExprPtr object) {
    ExprPtr start = Peek().Is(":") ? nullptr : ParseExpression();
    if (!SkipOp(":")) {
      if (Peek().Is(",")) start = ParseSubscriptTuple(bracket, std::move(start));
      ExpectOp("]");
      return Make(Expr::Kind::kItem, bracket, std::move(object), std::move(start));
    }
    auto bound = [&] { return Peek().Is(":") || Peek().Is("]") ? nullptr : ParseExpression(); };
    ExprPtr stop = bound();
    ExprPtr step = SkipOp(":") ? bound() : nullptr;
    ExpectOp("]");
    return Make(Expr::Kind::kSlice, bracket, std::move(object), std::move(start), std::move(stop),
                std::move(step));
  }
  ExprPtr ParseSubscriptTuple(const Token& bracket, ExprPtr first) {
    ExprPtr tuple = Make(Expr::Kind::kTuple, bracket, std::move(first));
    while (SkipOp(",")) Add(tuple, ParseExpression());
    return tuple;
  }

  ExprPtr ParseCall(ExprPtr callee) {
    ExprPtr expr = Make(Expr::Kind::kCall, Peek(), std::move(callee));
    ParseArguments(expr);
    return expr;
  }
  void ParseArguments(const ExprPtr& expr) {
    using Kind = Argument::Kind;
    const Token& open = Peek();
    ExpectOp("(");
    Kind last = Kind::kPositional;
    while (!Peek().Is(")")) {
      Argument argument{Kind::kPositional, "", nullptr};
      if (SkipOp("*")) {
        argument.kind = Kind::kSplat;
      } else if (SkipOp("**")) {
        argument.kind = Kind::kNamedSplat;
      } else if (Peek().type == Type::kName && Peek(1).Is("=")) {
        argument.kind = Kind::kNamed;
        argument.name = Next().text;
        Next();
      }
      // Positional before named before *splat before **splat, one of each splat.
      bool repeats = argument.kind >= Kind::kSplat && argument.kind == last;
      if (argument.kind < last || repeats)
        Fail(open, "invalid syntax for function call expression");
      last = argument.kind;
      argument.value = ParseExpression();
      Deepen(expr, argument.value);
      expr->arguments.push_back(std::move(argument));
      if (!SkipOp(",")) break;
    }
    ExpectOp(")");
  }

  ExprPtr ParseFiltersAndTests(ExprPtr expr) {
    while (true) {
      if (Peek().Is("|")) {
        expr = ParseFilters(std::move(expr));
      } else if (Peek().IsName("is")) {
        expr = ParseTest(std::move(expr));
      } else if (Peek().Is("(")) {
        expr = ParseCall(std::move(expr));
      } else {
        return expr;
      }
    }
  }
  ExprPtr ParseFilters(ExprPtr expr) {
    while (SkipOp("|")) expr = ParseFilter(std::move(expr));
    return expr;
  }
  ExprPtr ParseFilter(ExprPtr value) {
    const Token& name = Expect(Type::kName, "a filter name");
    ExprPtr expr = Make(Expr::Kind::kFilter, name, std::move(value));
    expr->name = ParseDottedName(name);
    expr->builtin = FindFilter(expr->name);
    if (expr->builtin == nullptr) NoteUnknown("filter", name, expr->name);
    if (Peek().Is("(")) ParseArguments(expr);
    return expr;
  }
  ExprPtr ParseTest(ExprPtr value) {
    Next();
    const Token& first = Peek();
    bool negated = SkipName("not");
    const Token& name = Expect(Type::kName, "a test name");
    ExprPtr expr = Make(Expr::Kind::kTest, name, std::move(value));
    expr->name = ParseDottedName(name);
    expr->builtin = FindTest(expr->name);
    if (expr->builtin == nullptr) NoteUnknown("test", name, expr->name);
    if (Peek().Is("(")) {
      ParseArguments(expr);
    } else if (AtTestArgument()) {
      if (Peek().IsName("is")) Fail(Peek(), "You cannot chain multiple tests with is");
      Argument argument{Argument::Kind::kPositional, "", ParsePostfix(ParsePrimary())};
      Deepen(expr, argument.value);
      expr->arguments.push_back(std::move(argument));
    }
    return negated ? Make(Expr::Kind::kNot, first, std::move(expr)) : std::move(expr);
  }
  bool AtTestArgument() const {
    const Token& token = Peek();
    switch (token.type) {
      case Type::kName:
        return !AtName({"else", "or", "and"});
      case Type::kString:
      case Type::kInteger:
      case Type::kFloat:
        return true;
      default:
        return token.Is("[") || token.Is("{");
    }
  }
  std::string ParseDottedName(const Token& first) {
    std::string name = first.text;
    while (SkipOp(".")) name += "." + Expect(Type::kName, "a name").text;
    return name;
  }
  void NoteUnknown(std::string_view kind, const Token& token, const std::string& name) {
    if (soft_ == 0)
      unknown_.emplace_back(token, fmt::format("no {} named '{}'", kind, Printable(name, 40)));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Program program_;
  std::unordered_map<std::string, int> symbol_of_;
  int nesting_ = 0;
  int loops_ = 0;  // loops around the statement, within its macro
  int soft_ = 0;   // conditions around it
  std::vector<std::pair<Token, std::string>>
      unknown_;                     // filters and tests outside conditions, so far
  std::vector<MacroDef*> macros_;   // around it
  std::vector<std::string> bound_;  // names that loops, parameters and with give
};

}  // namespace lockstep::jinja
