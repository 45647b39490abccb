#include "text/jinja_parser.h"

#include "text/jinja_expr_parser.h"

namespace lockstep::jinja {
namespace {

class Parser : public ExprParser {
 public:
  explicit Parser(std::string_view source) : ExprParser(source) {}

  Program Run() {
    program_.body = ParseBody({});
    if (!unknown_.empty()) Fail(unknown_[0].first, unknown_[0].second);
    return std::move(program_);
  }

 private:
  // ---- statements

  // Statements up to a tag that starts with one of `ends`, whose name is left as the next token; up
  // to the end of the template where there are none.
  Block ParseBody(Names ends) {
    Block body;
    while (Peek().type != Type::kEnd) {
      const Token& token = Next();
      if (token.type == Type::kData) {
        body.push_back(MakeStmt(Stmt::Kind::kText, token));
        body.back()->text = token.text;
      } else if (token.type == Type::kVariableBegin) {
        body.push_back(MakeStmt(Stmt::Kind::kOutput, token));
        body.back()->expr = ParseTuple();
        Expect(Type::kVariableEnd, "'}}'");
      } else {
        if (AtName(ends)) return body;
        body.push_back(ParseStatement());
        Expect(Type::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) {
      Fail(Peek(), fmt::format("expected '{}', found the end of the template", *(ends.end() - 1)));
    }
    return body;
  }
  // The body between the end of the current tag and the tag `end`, which is consumed up to its
  // '%}'.
  Block ParseBodyUntil(std::string_view end) {
    Block body = ParseBranch({end});
    Next();
    return body;
  }
  Block ParseBranch(Names ends) {
    SkipOp(":");
    Expect(Type::kBlockEnd, "'%}'");
    return ParseBody(ends);
  }

  std::unique_ptr<Stmt> ParseStatement() {
    using Method = std::unique_ptr<Stmt> (Parser::*)(const Token&);
    static const std::unordered_map<std::string_view, Method> kStatements = {
        {"for", &Parser::ParseFor},           {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},           {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},    {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},         {"generation", &Parser::ParseGeneration},
        {"block", &Parser::ParseNamedBlock},  {"print", &Parser::ParsePrint},
        {"break", &Parser::ParseLoopControl}, {"continue", &Parser::ParseLoopControl},
    };
    Nest nest(*this);
    const Token& tag = Expect(Type::kName, "a statement");
    auto found = kStatements.find(tag.text);
    if (found != kStatements.end()) return (this->*found->second)(tag);
    static constexpr std::string_view kOtherFiles[] = {"include", "import", "from", "extends"};
    if (std::find(std::begin(kOtherFiles), std::end(kOtherFiles), tag.text) !=
        std::end(kOtherFiles)) {
      Fail(tag,
           fmt::format("'{}' needs another template, which a chat template cannot have", tag.text));
    }
    Fail(tag, "unknown statement '" + Printable(tag.text, 40) + "'");
  }

  std::unique_ptr<Stmt> ParseIf(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kIf, tag);
    SoftGuard soft(*this);
    while (true) {
      ExprPtr test = ParseTuple(/*allow_condition=*/Conditions::kNo);
      stmt->branches.push_back({std::move(test), ParseBranch({"elif", "else", "endif"})});
      const Token& end = Next();
      if (end.text == "elif") continue;
      if (end.text == "else") stmt->branches.push_back({nullptr, ParseBodyUntil("endif")});
      return stmt;
    }
  }

  std::unique_ptr<Stmt> ParseFor(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kFor, tag);
    stmt->target = ParseTarget(Namespaces::kNo);
    if (!SkipName("in")) Fail(Peek(), fmt::format("expected 'in', found {}", Peek().Describe()));
    stmt->expr = ParseTuple(Conditions::kNo, "recursive");
    size_t bound = bound_.size();
    Bind(*stmt->target);
    if (SkipName("if")) stmt->test = ParseExpression();
    stmt->recursive = SkipName("recursive");
    bound_.push_back("loop");
    ++loops_;
    stmt->body = ParseBranch({"else", "endfor"});
    --loops_;
    bound_.resize(bound);
    if (Next().text == "else") stmt->branches.push_back({nullptr, ParseBodyUntil("endfor")});
    return stmt;
  }

  std::unique_ptr<Stmt> ParseSet(const Token& tag) {
    ExprPtr target = ParseTarget(Namespaces::kYes);
    bool block = !SkipOp("=");
    auto stmt = MakeStmt(block ? Stmt::Kind::kSetBlock : Stmt::Kind::kSet, tag);
    stmt->target = std::move(target);
    if (block) {
      stmt->expr = ParseFilters(nullptr);
      stmt->body = ParseBodyUntil("endset");
    } else {
      stmt->expr = ParseTuple();
    }
    return stmt;
  }

  void ParseSignature(MacroDef& macro) {
    ExpectOp("(");
    while (!Peek().Is(")")) {
      if (!macro.parameters.empty()) ExpectOp(",");
      const Token& name = Expect(Type::kName, "a parameter");
      Parameter parameter{name.text, Symbol(name.text), nullptr};
      if (SkipOp("=")) {
        parameter.fallback = ParseExpression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
        Fail(name, "non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    ExpectOp(")");
  }
  void ParseMacroBody(MacroDef& macro, std::string_view end) {
    size_t bound = bound_.size();
    for (const Parameter& parameter : macro.parameters) bound_.push_back(parameter.name);
    for (std::string_view name : {"caller", "varargs", "kwargs"}) bound_.emplace_back(name);
    macros_.push_back(&macro);
    int loops = std::exchange(loops_, 0);
    macro.body = ParseBodyUntil(end);
    loops_ = loops;
    macros_.pop_back();
    bound_.resize(bound);
  }

  std::unique_ptr<Stmt> ParseMacro(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kMacro, tag);
    stmt->macro = std::make_unique<MacroDef>();
    stmt->macro->name = Expect(Type::kName, "a macro name").text;
    stmt->symbol = Symbol(stmt->macro->name);
    ParseSignature(*stmt->macro);
    ParseMacroBody(*stmt->macro, "endmacro");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseCallBlock(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kCallBlock, tag);
    stmt->macro = std::make_unique<MacroDef>();
    stmt->macro->name = "caller";
    if (Peek().Is("(")) ParseSignature(*stmt->macro);
    stmt->expr = ParseExpression();
    if (stmt->expr->kind != Expr::Kind::kCall) Fail(tag, "expected call");
    ParseMacroBody(*stmt->macro, "endcall");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseFilterBlock(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kFilterBlock, tag);
    stmt->expr = ParseFilters(ParseFilter(nullptr));
    stmt->body = ParseBodyUntil("endfilter");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseWith(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kWith, tag);
    while (Peek().type != Type::kBlockEnd) {
      if (!stmt->bindings.empty()) ExpectOp(",");
      ExprPtr target = ParseTarget(Namespaces::kNo);
      ExpectOp("=");
      stmt->bindings.emplace_back(std::move(target), ParseExpression());
    }
    size_t bound = bound_.size();
    for (const auto& binding : stmt->bindings) Bind(*binding.first);
    stmt->body = ParseBodyUntil("endwith");
    bound_.resize(bound);
    return stmt;
  }

  // transformers marks what the assistant wrote with this; the text is the body's.
  std::unique_ptr<Stmt> ParseGeneration(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kScope, tag);
    stmt->body = ParseBodyUntil("endgeneration");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseNamedBlock(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kScope, tag);
    Expect(Type::kName, "a block name");
    SkipName("scoped");
    SkipName("required");
    stmt->body = ParseBodyUntil("endblock");
    if (Peek().type == Type::kName) Next();
    return stmt;
  }

  std::unique_ptr<Stmt> ParsePrint(const Token& tag) {
    auto stmt = MakeStmt(Stmt::Kind::kOutput, tag);
    stmt->expr = Make(Expr::Kind::kConcat, tag);
    while (Peek().type != Type::kBlockEnd) {
      if (!stmt->expr->parts.empty()) ExpectOp(",");
      Add(stmt->expr, ParseExpression());
    }
    return stmt;
  }

  std::unique_ptr<Stmt> ParseLoopControl(const Token& tag) {
    if (loops_ == 0) Fail(tag, fmt::format("'{}' outside loop", tag.text));
    return MakeStmt(tag.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, tag);
  }

  // ---- targets

  enum class Namespaces { kNo, kYes };

  ExprPtr ParseTarget(Namespaces namespaces) {
    const Token& first = Peek();
    ExprPtr target = ParseOneTarget(namespaces);
    if (!Peek().Is(",")) return target;
    ExprPtr tuple = Make(Expr::Kind::kTuple, first, std::move(target));
    while (SkipOp(",")) {
      if (Peek().IsName("in") || Peek().Is("=") || Peek().Is(")") || Peek().type == Type::kBlockEnd)
        break;
      Add(tuple, ParseOneTarget(namespaces));
    }
    return tuple;
  }

  ExprPtr ParseOneTarget(Namespaces namespaces) {
    Nest nest(*this);
    if (SkipOp("(")) {
      ExprPtr target = ParseTarget(namespaces);
      ExpectOp(")");
      return target;
    }
    const Token& token = Expect(Type::kName, "a name to assign to");
    static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                      "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), token.text) !=
        std::end(kConstants)) {
      Fail(token, fmt::format("can't assign to '{}'", token.text));
    }
    ExprPtr name = Make(Expr::Kind::kName, token);
    name->name = token.text;
    name->symbol = Symbol(token.text);
    if (namespaces == Namespaces::kNo || !SkipOp(".")) return name;
    ExprPtr attribute = Make(Expr::Kind::kAttribute, token, std::move(name));
    attribute->name = Expect(Type::kName, "an attribute").text;
    return attribute;
  }
};

}  // namespace

Program Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace lockstep::jinja
