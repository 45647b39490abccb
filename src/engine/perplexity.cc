#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

// How a text is cut, from the options and what the vocabulary wants.
struct Cut {
  std::vector<int32_t> text;   // tokens
  std::vector<int32_t> front;  // stands before the text of each window
  bool replace_first = false;  // the first token of each window becomes text[0]
  int64_t step = 0;            // tokens of text from window to window
  int64_t scored = 0;          // at the end of each window
};

Cut PlanCut(std::string_view text, const Tokenizer& tokenizer, const WindowOptions& options) {
  Cut cut;
  cut.text = tokenizer.Encode(text);
  const std::optional<int32_t> bos = tokenizer.special(Special::kBos);
  const bool prefixed = options.bos && !tokenizer.prefix().empty();
  if (options.stride == 0 && options.mode == WindowMode::kFull) {
    if (options.bos && bos) cut.front = {*bos};
    cut.step = options.length - std::ssize(cut.front);
    cut.scored = options.length - 1;
    return cut;
  }
  if (prefixed) {
    cut.text.insert(cut.text.begin(), tokenizer.prefix().begin(), tokenizer.prefix().end());
  }
  cut.replace_first = prefixed;
  cut.step = options.stride == 0 ? options.length : options.stride;
  cut.scored = options.stride == 0 ? options.length - 1 - options.length / 2 : options.stride;
  return cut;
}

// Calls work(row) for every row, shared out over the model's team.
void ForEachRow(Model& model, int64_t rows, FunctionRef<void(int64_t row)> work) {
  ThreadTeam& team = model.team();
  team.Run([&](int member) {
    const WorkRange mine = ShareOf(rows, 1, member, team.size());
    for (int64_t row = mine.begin; row < mine.end; ++row) work(row);
  });
}

}  // namespace

Windows CutWindows(std::string_view text, const Tokenizer& tokenizer,
                   const WindowOptions& options) {
  if (options.length < 3) {
    throw Refused("window: expected at least 3 tokens, found {}", options.length);
  }
  if (options.stride < 0 || options.stride >= options.length) {
    throw Refused("stride: expected fewer tokens than the window's {}, found {}", options.length,
                  options.stride);
  }
  const Cut cut = PlanCut(text, tokenizer, options);
  Windows windows;
  windows.length = options.length;
  windows.first_scored = options.length - 1 - cut.scored;
  const int64_t needed = options.length - std::ssize(cut.front);
  if (std::ssize(cut.text) < needed) {
    throw Refused("text: expected at least one window of {} tokens, found {} tokens", needed,
                  cut.text.size());
  }
  for (int64_t at = 0; at + needed <= std::ssize(cut.text); at += cut.step) {
    if (options.max_windows >= 0 && windows.count() >= options.max_windows) break;
    const auto begin = std::ssize(windows.tokens);
    windows.tokens.insert(windows.tokens.end(), cut.front.begin(), cut.front.end());
    windows.tokens.insert(windows.tokens.end(), cut.text.begin() + at,
                          cut.text.begin() + at + needed);
    if (cut.replace_first) windows.tokens[static_cast<size_t>(begin)] = cut.text[0];
  }
  return windows;
}

void RunWindow(Evaluator& evaluator, const Windows& windows, int64_t index,
               FunctionRef<void(const EvaluatedRows& rows, std::span<const int32_t> next)> visit) {
  const std::span<const int32_t> window = windows.window(index);
  evaluator.Rewind(0);
  // Nothing follows the last token.
  evaluator.Run(
      window.first(window.size() - 1), windows.first_scored, [&](const EvaluatedRows& rows) {
        visit(rows,
              window.subspan(static_cast<size_t>(rows.first) + 1, static_cast<size_t>(rows.rows)));
      });
}

std::vector<TokenScore> ScoreRows(Model& model, std::span<const float> logits,
                                  std::span<const int32_t> next) {
  std::vector<TokenScore> scores(next.size());
  const auto vocab = static_cast<size_t>(model.vocab());
  ForEachRow(model, std::ssize(next), [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    scores[i] = ScoreToken(logits.subspan(i * vocab, vocab), next[i], model.isa());
  });
  return scores;
}

std::vector<TokenDivergence> DivergeRows(Model& model, std::span<const float> base,
                                         std::span<const float> logits,
                                         std::span<const int32_t> next) {
  std::vector<TokenDivergence> scores(next.size());
  const auto vocab = static_cast<size_t>(model.vocab());
  ForEachRow(model, std::ssize(next), [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    scores[i] = Diverge(base.subspan(i * vocab, vocab), logits.subspan(i * vocab, vocab), next[i],
                        model.isa());
  });
  return scores;
}

void Mean::Add(double value) {
  ++count_;
  sum_ += value;
  squares_ += value * value;
}

double Mean::rms() const {
  return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
}

double Mean::error() const {
  if (count_ < 2) return 0;
  const double variance = squares_ / static_cast<double>(count_) - mean() * mean();
  return std::sqrt(std::max(variance, 0.0) / static_cast<double>(count_ - 1));
}

}  // namespace lockstep
