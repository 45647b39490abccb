#include "ops/factor_rule.h"

#include <map>

#include "base/error.h"

namespace lockstep {
namespace {

FactorRule::Term ParseTerm(std::string_view text, std::string_view rule) {
  FactorRule::Term term;
  for (char c : text) {
    if (c == ' ') continue;
    if (c == '!') {
      LOCKSTEP_CHECK(!term.empty(), "rule '{}': '!' without a factor", rule);
      term.back().whole = true;
    } else {
      LOCKSTEP_CHECK((c >= 'a' && c <= 'z') || c == '*', "rule '{}': '{}'", rule, c);
      term.push_back({c, false});
    }
  }
  return term;
}

std::vector<FactorRule::Term> ParseTerms(std::string_view text, std::string_view rule) {
  std::vector<FactorRule::Term> terms;
  while (true) {
    const size_t comma = text.find(',');
    terms.push_back(ParseTerm(text.substr(0, comma), rule));
    if (comma == std::string_view::npos) return terms;
    text.remove_prefix(comma + 1);
  }
}

// What each factor of a rule stands for in one node.
struct Bindings {
  std::map<char, std::pair<Axis, size_t>> axes;  // and the operand that bound it first
  std::map<char, std::vector<Axis>> runs;
};

void BindTerm(std::string_view who, const FactorRule::Term& term, const Shape& shape, size_t operand, Bindings& bound) {
  const bool has_run = std::ranges::any_of(term, [](const auto& f) { return f.letter == '*'; });
  const size_t fixed = term.size() - (has_run ? 1 : 0);
  if (shape.rank() < fixed || (!has_run && shape.rank() != fixed)) {
    throw Refused("{}: operand {}: expected {}{} axes, found {}", who, operand, has_run ? "at least " : "", fixed,
                  shape.ToString());
  }
  size_t at = 0;
  for (const auto& factor : term) {
    if (factor.letter == '*') {
      std::vector<Axis> run(shape.begin() + at, shape.begin() + at + shape.rank() - fixed);
      at += run.size();
      auto [it, fresh] = bound.runs.try_emplace('*', run);
      if (!fresh && it->second != run) {
        throw Refused("{}: operand {}: {} does not match the other operands", who, operand, shape.ToString());
      }
      continue;
    }
    const Axis& axis = shape[at++];
    auto [it, fresh] = bound.axes.try_emplace(factor.letter, axis, operand);
    const Axis& first = it->second.first;
    if (!fresh && first.size != axis.size) {
      throw Refused("{}: axis {} is {} in operand {} but {} in operand {}", who, first.name, first.size, it->second.second,
                    axis.size, operand);
    }
  }
}

}  // namespace

FactorRule::FactorRule(std::string_view text) {
  const size_t arrow = text.find("->");
  LOCKSTEP_CHECK(arrow != std::string_view::npos, "rule '{}': no arrow", text);
  inputs_ = ParseTerms(text.substr(0, arrow), text);
  outputs_ = ParseTerms(text.substr(arrow + 2), text);
}

std::vector<Shape> FactorRule::Infer(std::string_view who, std::span<const Shape> operands) const {
  if (operands.size() != inputs_.size()) {
    throw Refused("{}: expected {} operands, found {}", who, inputs_.size(), operands.size());
  }
  Bindings bound;
  for (size_t i = 0; i < operands.size(); ++i) BindTerm(who, inputs_[i], operands[i], i, bound);
  std::vector<Shape> shapes;
  for (const Term& term : outputs_) {
    Shape shape;
    for (const Factor& factor : term) {
      if (factor.letter == '*') {
        for (const Axis& axis : bound.runs['*']) shape.Append(axis);
      } else {
        auto it = bound.axes.find(factor.letter);
        LOCKSTEP_CHECK(it != bound.axes.end(), "{}: factor {} of the output is in no operand", who, factor.letter);
        shape.Append(it->second.first);
      }
    }
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace lockstep
