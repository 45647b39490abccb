// Runs given tokens of one sequence through a model and hands out logits: what every measurement
// shares. Nothing is sampled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/model.h"

namespace lockstep {

// Some rows of what Evaluator::Run() was given, as they come.
struct EvaluatedRows {
  int64_t first;                  // index of the first row among the tokens given
  int64_t rows;                   // at most ProgramOptions::max_outputs
  std::span<const float> logits;  // [rows, v], valid until the next batch
};

// Owns the first slot and pages of the model's pools for one sequence of up to context() positions, so that
// neither an Engine nor a second Evaluator may use the model meanwhile.
class Evaluator {
 public:
  explicit Evaluator(Model& model);

  // Throws Refused for tokens that Run() would refuse at `position`: more than the context has room for, ids that are no tokens.
  static void Expect(const Model& model, std::span<const int32_t> tokens, int64_t position = 0);

  Model& model() { return model_; }
  // Of the sequence, for graphs beside the model's.
  std::span<const int32_t> pages() const { return pages_; }
  // Tokens taken in so far.
  int64_t position() const { return position_; }
  // Forgets the tokens from `position` on, which is not beyond position(). Where the model's recurrent states cannot go back that
  // far, the tokens before are taken in again.
  void Rewind(int64_t position);

  // Takes in the tokens of a file that Save() or Engine::SaveState() wrote, and what it has cached of
  // them; the others are computed. Only at position 0. Throws Refused as SavedState does, before anything has changed, and as Run() does.
  void Load(const std::string& path);
  // Writes tokens and what is cached of them. Throws Failed where the file cannot be written.
  void Save(const std::string& path);

  // Takes in tokens, in micro-batches, and gives the logits of each from index `first_wanted` on to
  // `visit`; rows that nobody wants cost no logits. Throws Refused where the context is too short
  // or an id is no token, Failed where a number is not finite, naming step and position, and
  // Error(kInterrupted) between batches.
  void Run(std::span<const int32_t> tokens, int64_t first_wanted,
           FunctionRef<void(const EvaluatedRows&)> visit);
  // The same without results.
  void Run(std::span<const int32_t> tokens);

  // The residual stream of the rows that `visit` is looking at, for a model opened with
  // LoadOptions::hidden. layer 0: after the embedding; the last, Graph::hidden.size() - 1, has
  // passed the final norm. [rows, n]
  std::span<const float> Hidden(int64_t layer) const;

  // Runs the next-token block (LoadOptions::next_token) on the rows that `visit` is looking at: of each, with the token that follows it, row
  // j the logits of the token after that. next: the tokens behind those rows, where there are fewer the last rows are left out.
  // Results come as those of Run(), with `first` among the rows here.
  void RunNextToken(const EvaluatedRows& rows, std::span<const int32_t> next,
                    FunctionRef<void(const EvaluatedRows&)> visit);
  // What the block makes of the rows that this `visit` is looking at, before the norm of its head. [rows, n]
  std::span<const float> NextTokenHidden() const;

 private:
  Model& model_;
  std::vector<int32_t> pages_;
  std::vector<int32_t> tokens_;  // taken in
  int64_t position_ = 0;
  int64_t restore_ = -1;      // snapshot with which the next row begins
  int64_t snapshot_end_ = 0;  // tokens in the snapshot of recurrent states; 0: there is none
};

}  // namespace lockstep
