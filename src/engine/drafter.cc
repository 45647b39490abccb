#include "engine/drafter.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "engine/sequence_rows.h"

namespace lockstep {

Drafter::Drafter(Evaluator& evaluator)
    : evaluator_(evaluator), draft_(*evaluator.model().draft()) {}

void Drafter::See(const EvaluatedRows& rows) {
  const RankSet& model = evaluator_.model().ranks();
  const auto count = static_cast<size_t>(rows.rows);
  std::vector<float> input;
  for (size_t row = 0; row < count; ++row) {
    for (ValueId value : graphs().seen) {
      const std::span<const float> all = model.Result(value);
      const auto part = all.subspan(row * (all.size() / count), all.size() / count);
      input.insert(input.end(), part.begin(), part.end());
    }
  }
  last_.assign(input.end() - std::ssize(input) / rows.rows, input.end());
  if (!draft_.context) return;
  // What is cached depends on the rows and their places alone.
  const std::vector<int32_t> tokens(count);
  const SequenceRows seen{evaluator_.pages(), tokens, evaluator_.position() - rows.rows, rows.rows,
                          input};
  RunRows(seen, *draft_.context->ranks, [](const RowsDone&) {});
}

Drafted Drafter::Draft(int32_t token, int64_t most) {
  const int64_t end = evaluator_.position() + std::max<int64_t>(graphs().block, 1);
  if (end > evaluator_.model().context()) {
    throw Refused("context: expected at least {} positions for the tokens drafted, found {}", end,
                  evaluator_.model().context());
  }
  Drafted drafted;
  drafted.tokens = {token};
  if (graphs().block != 0) {
    DraftBlock(drafted);
  } else {
    DraftSteps(most, drafted);
  }
  return drafted;
}

void Drafter::Append(Drafted& drafted, std::span<const float> logits) const {
  drafted.logits.insert(drafted.logits.end(), logits.begin(), logits.end());
  // Of equal ones the first.
  drafted.tokens.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
}

void Drafter::DraftBlock(Drafted& drafted) {
  std::vector<int32_t> tokens(static_cast<size_t>(graphs().block), graphs().mask_token);
  tokens[0] = drafted.tokens[0];
  const Graph& graph = draft_.graph->graph;
  RunRows({evaluator_.pages(), tokens, evaluator_.position()}, ranks(), [&](const RowsDone&) {
    const std::span<const float> logits = ranks().Result(graph.logits),
                                 hidden = ranks().Result(graph.final_hidden);
    drafted.hidden.assign(hidden.begin(), hidden.end());
    const size_t vocab = logits.size() / tokens.size();
    for (size_t row = 1; row < tokens.size(); ++row)
      Append(drafted, logits.subspan(row * vocab, vocab));
  });
}

void Drafter::DraftSteps(int64_t steps, Drafted& drafted) {
  const Graph& graph = draft_.graph->graph;
  std::vector<float> input = last_;
  for (int64_t step = 0; step < steps; ++step) {
    // All see what the model has cached, and stand behind it.
    const std::array<int32_t, 1> token = {drafted.tokens.back()};
    RunRows({evaluator_.pages(), token, evaluator_.position(), 0, input}, ranks(),
            [&](const RowsDone&) { Append(drafted, ranks().Result(graph.logits)); });
    const std::span<const float> next = ranks().Result(graph.final_hidden);
    input.assign(next.begin(), next.end());
    drafted.hidden.insert(drafted.hidden.end(), next.begin(), next.end());
  }
}

}  // namespace lockstep
