#include "ops/factor_rule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

bool IsRun(char letter) { return letter == '*' || letter == '+'; }

FactorRule::Term ParseTerm(std::string_view text, std::string_view rule) {
  FactorRule::Term term;
  for (char c : text) {
    if (c == ' ') continue;
    if (c == '!') {
      LOCKSTEP_CHECK(!term.empty(), "rule '{}': '!' without a factor", rule);
      term.back().whole = true;
    } else {
      LOCKSTEP_CHECK((c >= 'a' && c <= 'z') || IsRun(c), "rule '{}': '{}'", rule, c);
      term.push_back({c, false});
    }
  }
  LOCKSTEP_CHECK(!term.empty(), "rule '{}': an operand without factors", rule);
  return term;
}

constexpr std::string_view kPartialNames[] = {"sum", "max", "lse"};

// Takes "max:" or "lse:" from the head of a rule's output.
PartialKind TakeReduction(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  for (PartialKind kind : {PartialKind::kMax, PartialKind::kLse}) {
    const std::string_view name = PartialName(kind);
    if (!text.starts_with(name) || !text.substr(name.size()).starts_with(':')) continue;
    text.remove_prefix(name.size() + 1);
    return kind;
  }
  return PartialKind::kSum;
}

// Takes the marks of operands that may be a rank's own.
std::vector<bool> TakeOwnMarks(std::string& text) {
  std::vector<bool> own(1);
  std::string rest;
  for (char c : text) {
    if (c == ',') own.push_back(false);
    if (c == '~') {
      own.back() = true;
    } else {
      rest += c;
    }
  }
  text = rest;
  return own;
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

// A run of an output is some input's, and a term whose runs are not known from the terms before it has one at most: its length is what
// the operand has left.
void CheckRuns(const FactorRule& rule, std::string_view text) {
  std::string known;
  for (const FactorRule::Term& term : rule.inputs()) {
    const size_t before = known.size();
    for (const auto& factor : term) {
      if (IsRun(factor.letter) && known.find(factor.letter) == std::string::npos)
        known += factor.letter;
    }
    LOCKSTEP_CHECK(known.size() <= before + 1,
                   "rule '{}': two runs of unknown length in one operand", text);
  }
  for (const FactorRule::Term& term : rule.outputs()) {
    for (const auto& factor : term) {
      LOCKSTEP_CHECK(!IsRun(factor.letter) || known.find(factor.letter) != std::string::npos,
                     "rule '{}': run '{}' of the output is in no operand", text, factor.letter);
    }
  }
}

// What each factor of a rule stands for in one node.
struct Bindings {
  std::map<char, std::pair<Axis, size_t>> axes;  // and the operand that bound it first
  std::map<char, std::vector<Axis>> runs;
};

void BindTerm(std::string_view who, const FactorRule::Term& term, const Shape& shape,
              size_t operand, Bindings& bound) {
  // All but one run have a known length; what the other operands and letters leave is the length of that one.
  size_t fixed = 0;
  bool open = false;
  for (const auto& factor : term) {
    auto run = bound.runs.find(factor.letter);
    if (run != bound.runs.end()) {
      fixed += run->second.size();
    } else if (IsRun(factor.letter)) {
      open = true;
    } else {
      ++fixed;
    }
  }
  if (shape.rank() < fixed || (!open && shape.rank() != fixed)) {
    throw Refused("{}: operand {}: expected {}{} axes, found {}", who, operand,
                  open ? "at least " : "", fixed, shape.ToString());
  }
  size_t at = 0;
  for (const auto& factor : term) {
    if (IsRun(factor.letter)) {
      auto [it, fresh] = bound.runs.try_emplace(factor.letter);
      const size_t length = fresh ? shape.rank() - fixed : it->second.size();
      std::vector<Axis> run(shape.begin() + at, shape.begin() + at + length);
      at += length;
      if (fresh) {
        it->second = run;
      } else if (it->second != run) {
        throw Refused("{}: operand {}: {} does not match the operands before it", who, operand,
                      shape.ToString());
      }
      continue;
    }
    const Axis& axis = shape[at++];
    auto [it, fresh] = bound.axes.try_emplace(factor.letter, axis, operand);
    const Axis& first = it->second.first;
    if (!fresh && first.size != axis.size) {
      throw Refused("{}: axis {} is {} in operand {} but {} in operand {}", who, first.name,
                    first.size, it->second.second, axis.size, operand);
    }
  }
}

}  // namespace

std::string_view PartialName(PartialKind kind) { return kPartialNames[static_cast<size_t>(kind)]; }

FactorRule::FactorRule(std::string_view text) {
  const size_t arrow = text.find("->");
  LOCKSTEP_CHECK(arrow != std::string_view::npos, "rule '{}': no arrow", text);
  std::string inputs(text.substr(0, arrow));
  own_ = TakeOwnMarks(inputs);
  inputs_ = ParseTerms(inputs, text);
  std::string_view outputs = text.substr(arrow + 2);
  reduction_ = TakeReduction(outputs);
  if (outputs.find_first_not_of(' ') != std::string_view::npos) {
    outputs_ = ParseTerms(outputs, text);
  }
  CheckRuns(*this, text);
}

std::vector<Shape> FactorRule::Infer(std::string_view who, std::span<const Shape> operands,
                                     const OwnAxes& own) const {
  if (operands.size() != inputs_.size()) {
    throw Refused("{}: expected {} operands, found {}", who, inputs_.size(), operands.size());
  }
  Bindings bound;
  for (const auto& [letter, axis] : own) bound.axes.try_emplace(letter, axis, size_t{0});
  for (size_t i = 0; i < operands.size(); ++i) BindTerm(who, inputs_[i], operands[i], i, bound);
  std::vector<Shape> shapes;
  for (const Term& term : outputs_) {
    Shape shape;
    for (const Factor& factor : term) {
      if (IsRun(factor.letter)) {
        for (const Axis& axis : bound.runs[factor.letter]) shape.Append(axis);
      } else {
        auto it = bound.axes.find(factor.letter);
        LOCKSTEP_CHECK(it != bound.axes.end(), "{}: factor {} of the output is in no operand", who,
                       factor.letter);
        shape.Append(it->second.first);
      }
    }
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<BoundFactor> FactorRule::Bind(std::string_view who, std::span<const Shape> operands,
                                          const OwnAxes& own) const {
  Infer(who, operands, own);
  Bindings bound;
  for (size_t i = 0; i < operands.size(); ++i) BindTerm(who, inputs_[i], operands[i], i, bound);
  std::vector<BoundFactor> factors;
  // A factor of a run is known by the run's letter and its place in the run.
  std::map<std::pair<char, size_t>, size_t> index;
  auto visit = [&](const Term& term, auto place_of) {
    int at = 0;
    for (const Factor& factor : term) {
      const size_t length = IsRun(factor.letter) ? bound.runs[factor.letter].size() : 1;
      for (size_t i = 0; i < length; ++i, ++at) {
        auto [it, fresh] = index.try_emplace({factor.letter, i}, factors.size());
        if (fresh) {
          factors.push_back({factor.letter, false, {}, std::vector<int>(inputs_.size(), -1),
                             std::vector<int>(outputs_.size(), -1)});
        }
        factors[it->second].whole |= factor.whole;
        place_of(factors[it->second]) = at;
      }
    }
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t known = factors.size();
    visit(inputs_[i], [i](BoundFactor& factor) -> int& { return factor.in[i]; });
    for (size_t f = known; f < factors.size(); ++f) {
      factors[f].axis = operands[i][static_cast<size_t>(factors[f].in[i])];
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    visit(outputs_[i], [i](BoundFactor& factor) -> int& { return factor.out[i]; });
  }
  for (const auto& [letter, axis] : own) {
    if (auto it = index.find({letter, 0}); it != index.end()) factors[it->second].axis = axis;
  }
  return factors;
}

}  // namespace lockstep
