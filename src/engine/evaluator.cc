#include "engine/evaluator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/interrupt.h"

namespace lockstep {

Evaluator::Evaluator(Model& model) : model_(model) {
  pages_.resize(static_cast<size_t>(CeilDiv(model.context(), kPageTokens)));
  std::iota(pages_.begin(), pages_.end(), 0);
}

void Evaluator::Rewind(int64_t position) {
  LOCKSTEP_CHECK(position >= 0 && position <= position_, "{} of {}", position, position_);
  position_ = position;
  tokens_.resize(static_cast<size_t>(position));
  const RankSet& ranks = model_.ranks();
  if (!ranks.recurrent() || position == 0 || position >= ranks.Checkpoint(0)) return;
  position_ = 0;
  Run(std::exchange(tokens_, {}));
}

void Evaluator::Expect(const Model& model, std::span<const int32_t> tokens, int64_t position) {
  const int64_t end = position + std::ssize(tokens);
  if (end > model.context()) {
    throw Refused("context: expected at least {} positions for the tokens given, found {}", end,
                  model.context());
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model.vocab()) {
      throw Refused("token {}: expected an id below {}, found {}", i, model.vocab(), tokens[i]);
    }
  }
}

void Evaluator::Run(std::span<const int32_t> tokens, int64_t first_wanted,
                    FunctionRef<void(const EvaluatedRows&)> visit) {
  Expect(model_, tokens, position_);
  const ProgramOptions& limits = model_.ranks().options();
  const auto size = std::ssize(tokens);
  for (int64_t begin = 0, end = 0; begin < size; begin = end) {
    ThrowIfInterrupted();
    const int64_t wanted = std::max(begin, first_wanted);
    end = std::min({size, begin + limits.max_tokens, wanted + limits.max_outputs});
    Batch batch;
    // Pages beyond the last row are nobody's business.
    batch.sequences = {{std::span(pages_).first(
        static_cast<size_t>(CeilDiv(position_ + end - begin, kPageTokens)))}};
    batch.sequences[0].slot = 0;
    for (int64_t i = begin; i < end; ++i) {
      batch.tokens.push_back(tokens[static_cast<size_t>(i)]);
      batch.places.push_back({0, position_ + i - begin});
      if (i >= wanted) batch.outputs.push_back(static_cast<int32_t>(i - begin));
    }
    model_.ranks().Run(batch);
    for (int64_t row = 0; row < end - begin; ++row) {
      const std::string step = model_.ranks().Fault(row);
      if (!step.empty()) {
        throw Failed("{}: expected finite numbers, found NaN or infinity at position {}", step,
                     position_ + row);
      }
    }
    position_ += end - begin;
    tokens_.insert(tokens_.end(), batch.tokens.begin(), batch.tokens.end());
    if (wanted < end) {
      visit({wanted, end - wanted, model_.ranks().Result(model_.graph().logits)});
    }
  }
}

void Evaluator::Run(std::span<const int32_t> tokens) {
  Run(tokens, std::ssize(tokens), [](const EvaluatedRows&) {});
}

std::span<const float> Evaluator::Hidden(int64_t layer) const {
  const Graph& graph = model_.graph();
  const auto index = static_cast<size_t>(layer);
  return model_.ranks().Result(index + 1 == graph.hidden.size() ? graph.final_hidden
                                                                : graph.hidden[index]);
}

}  // namespace lockstep
