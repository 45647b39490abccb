// Perplexity of a text: how it is cut into windows, what is scored in each, and the sums.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "engine/evaluator.h"
#include "engine/token_score.h"

namespace lockstep {

enum class WindowMode {
  kFull,  // BOS, then text; every token of the text is scored
  // As llama.cpp's `perplexity`: BOS takes the place of a window's first token where the vocabulary
  // puts one before texts; tokens of the second half are scored, those before are context.
  kHalf,
};

struct WindowOptions {
  int64_t length = 512;  // tokens of a window, BOS included
  WindowMode mode = WindowMode::kHalf;
  int64_t stride = 0;  // not 0: windows start so far apart and score their last `stride` tokens
  int64_t max_windows = -1;  // negative: all
  bool bos = true;           // false: no BOS anywhere
};

// Windows of equal length. In each, row i of first_scored .. length - 2 is scored by token i + 1.
struct Windows {
  int64_t length = 0;
  int64_t first_scored = 0;
  std::vector<int32_t> tokens;  // [windows, length]

  int64_t count() const { return std::ssize(tokens) / length; }
  int64_t scored() const { return length - 1 - first_scored; }  // rows of each window
  std::span<const int32_t> window(int64_t i) const {
    return std::span(tokens).subspan(static_cast<size_t>(i * length), static_cast<size_t>(length));
  }
};

// Cuts a text; what is left of it after the last whole window is not used. Refused where there is
// no whole window, with the numbers.
Windows CutWindows(std::string_view text, const Tokenizer& tokenizer, const WindowOptions& options);

// Runs window `index` from an empty context and gives each batch of scored rows to `visit`, with
// the tokens that came after them.
void RunWindow(Evaluator& evaluator, const Windows& windows, int64_t index,
               FunctionRef<void(const EvaluatedRows& rows, std::span<const int32_t> next)> visit);

// The scores of rows, computed by the team that the model has.
std::vector<TokenScore> ScoreRows(Model& model, std::span<const float> logits,
                                  std::span<const int32_t> next);
// The same against rows of another run, [rows, v].
std::vector<TokenDivergence> DivergeRows(Model& model, std::span<const float> base,
                                         std::span<const float> logits,
                                         std::span<const int32_t> next);

// Mean and error of a running sum.
class Mean {
 public:
  void Add(double value);
  int64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // Root of the mean square.
  double rms() const;
  // Standard error of the mean; 0 below two values.
  double error() const;

 private:
  int64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
};

}  // namespace lockstep
