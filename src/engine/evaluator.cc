#include "engine/evaluator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/saved_state.h"
#include "engine/sequence_rows.h"

namespace lockstep {
namespace {

// Of the model's snapshots of recurrent states, an evaluator's.
constexpr int64_t kSnapshot = 0;

}  // namespace

Evaluator::Evaluator(Model& model) : model_(model) {
  pages_.resize(static_cast<size_t>(CeilDiv(model.context(), kPageTokens)));
  std::iota(pages_.begin(), pages_.end(), 0);
}

void Evaluator::Rewind(int64_t position) {
  LOCKSTEP_CHECK(position >= 0 && position <= position_, "{} of {}", position, position_);
  if (position == position_) return;
  position_ = position;
  tokens_.resize(static_cast<size_t>(position));
  if (snapshot_end_ > position) snapshot_end_ = 0;
  const RankSet& ranks = model_.ranks();
  // Loaded states that no row has gone on from are not in the slot yet.
  const bool absent = std::exchange(restore_, -1) >= 0;
  if (!ranks.recurrent() || position == 0 || (!absent && position >= ranks.Checkpoint(0))) return;
  position_ = 0;
  Run(std::exchange(tokens_, {}));
}

void Evaluator::Load(const std::string& path) {
  LOCKSTEP_CHECK(position_ == 0, "{}", position_);
  const SavedState state(path, model_);
  RankSet& ranks = model_.ranks();
  const bool usable = !ranks.recurrent() || ranks.snapshots() > 0;
  const int64_t pages = usable ? state.pages() : 0;
  for (int64_t i = 0; i < pages; ++i) state.PutPage(i, ranks, pages_[static_cast<size_t>(i)]);
  if (ranks.recurrent() && pages > 0) {
    state.PutRecurrent(ranks, kSnapshot);
    restore_ = kSnapshot;
    snapshot_end_ = pages * kPageTokens;
  }
  const auto cached = static_cast<size_t>(pages * kPageTokens);
  tokens_.assign(state.tokens().begin(), state.tokens().begin() + pages * kPageTokens);
  position_ = pages * kPageTokens;
  Run(std::span(state.tokens()).subspan(cached));
}

void Evaluator::Save(const std::string& path) {
  const int64_t end = model_.ranks().recurrent() ? snapshot_end_ : position_;
  const auto pages = std::span(pages_).first(static_cast<size_t>(end / kPageTokens));
  WriteSavedState(path, model_, tokens_, pages, kSnapshot);
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
  SequenceRows rows{pages_, tokens, position_, first_wanted};
  if (model_.ranks().snapshots() > 0) {
    rows.restore = tokens.empty() ? -1 : std::exchange(restore_, -1);
    rows.save = kSnapshot;
  }
  RunRows(rows, model_.ranks(), [&](const RowsDone& done) {
    const auto taken =
        tokens.subspan(static_cast<size_t>(done.begin), static_cast<size_t>(done.end - done.begin));
    const int64_t page_end = (position_ + std::ssize(taken)) / kPageTokens * kPageTokens;
    if (rows.save >= 0 && page_end > position_) snapshot_end_ = page_end;
    position_ += std::ssize(taken);
    tokens_.insert(tokens_.end(), taken.begin(), taken.end());
    if (done.wanted == done.end) return;
    visit({done.wanted, done.end - done.wanted, model_.ranks().Result(model_.graph().logits)});
  });
}

void Evaluator::RunNextToken(const EvaluatedRows& rows, std::span<const int32_t> next,
                             FunctionRef<void(const EvaluatedRows&)> visit) {
  SideGraph& block = model_.next_token();
  const std::span<const float> hidden = model_.ranks().Result(model_.graph().final_hidden);
  const size_t width = hidden.size() / static_cast<size_t>(rows.rows);
  next = next.first(std::min(next.size(), static_cast<size_t>(rows.rows)));
  // The rows end where the sequence stands; each is at the position of its token.
  const SequenceRows after{pages_, next, position_ - rows.rows + 1, 0,
                           hidden.first(next.size() * width)};
  RunRows(after, *block.ranks, [&](const RowsDone& done) {
    visit({done.begin, done.end - done.begin, block.ranks->Result(block.graph.logits)});
  });
}

std::span<const float> Evaluator::NextTokenHidden() const {
  const SideGraph& block = model_.next_token();
  return block.ranks->Result(block.graph.hidden[0]);
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
