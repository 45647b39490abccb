#include "ops/ngram.h"

#include <algorithm>

namespace lockstep {
namespace {

class PreviousPart {
 public:
  PreviousPart(const StepContext& step, const RecurrentRun& run, int64_t n, int32_t end)
      : step_(step),
        view_(std::get<RecurrentView>(step.in[1])),
        slot_(reinterpret_cast<float*>(run.slot->data)),
        snapshot_(reinterpret_cast<float*>(run.slot->snapshot)),
        n_(n),
        end_(end) {}

  void Clear() { std::fill_n(State(), n_, 0.0f); }
  void Keep() { std::copy_n(State(), n_, slot_ + view_.kept); }
  void Restore() { std::copy_n(slot_ + view_.kept, n_, State()); }
  void Save() { std::copy_n(State(), n_, snapshot_ + view_.state); }
  void Replay(int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) Take(slot_[view_.log + i * view_.row_floats]);
  }
  void Advance(int64_t first, int64_t end) {
    for (int64_t t = first; t < end; ++t) {
      bool ended = false;
      for (int64_t j = 0; j < n_; ++j) {
        const float token = State()[j] - 1;
        ended |= token < 0 || token == static_cast<float>(end_);
        step_.out_rows().row(t)[j] = ended ? static_cast<float>(end_) : token;
      }
      Take(Token(t));
    }
  }
  void Log(int64_t row, int64_t index) { slot_[view_.log + index * view_.row_floats] = Token(row); }

 private:
  float* State() const { return slot_ + view_.state; }
  float Token(int64_t t) const {
    return static_cast<float>(step_.rows.tokens[static_cast<size_t>(t)] + 1);
  }
  void Take(float token) {
    std::copy_backward(State(), State() + n_ - 1, State() + n_);
    State()[0] = token;
  }

  const StepContext& step_;
  const RecurrentView view_;
  float* slot_;
  float* snapshot_;
  int64_t n_;
  int32_t end_;
};

class PreviousTokens final : public Operation {
 public:
  PreviousTokens(int64_t n, int32_t end) : n_(n), end_(end) {}
  std::string_view name() const override { return "previous_tokens"; }
  std::string_view rule() const override { return "t!, u! -> t!u!"; }
  std::string attributes() const override { return fmt::format("n={} end={}", n_, end_); }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kTokens : OperandKind::kState;
  }
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override {
    // A few numbers a token: not worth dividing.
    if (step.member != 0) return;
    ForEachRun(step.rows.places,
               [&](const RecurrentRun& run) { TakeIn(run, PreviousPart(step, run, n_, end_)); });
  }

 private:
  int64_t n_;
  int32_t end_;
};

class NgramEmbed final : public Operation {
 public:
  explicit NgramEmbed(const NgramSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "ngram_embed"; }
  std::string_view rule() const override { return "t, tu!, v!d! -> thd!"; }
  std::string attributes() const override { return fmt::format("heads={}", heads()); }
  FactorRule::OwnAxes own_axes() const override { return {{'h', Axis{'r', heads(), 1}}}; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kTokens : i == 1 ? OperandKind::kRows : OperandKind::kTable;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Table& table = std::get<Table>(step.in[2]);
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t h = 0; h < heads(); ++h) {
        const int64_t row = RowOf(step, t, static_cast<size_t>(h));
        table.format->decode(table.data + row * table.format->RowBytes(table.width),
                             table.width / table.format->block,
                             step.out_rows().row(t) + h * settings_.d);
      }
    }
  }

 private:
  int64_t heads() const { return std::ssize(settings_.sizes); }
  int64_t RowOf(const StepContext& step, int64_t t, size_t head) const {
    const float* previous = step.in_rows(1).row(t);
    const size_t orders = settings_.multipliers.size() - 1;
    const size_t others = head / (settings_.sizes.size() / orders) + 1;
    uint64_t mixed =
        static_cast<uint64_t>(step.rows.tokens[static_cast<size_t>(t)]) * settings_.multipliers[0];
    for (size_t j = 0; j < others; ++j)
      mixed ^= static_cast<uint64_t>(previous[j]) * settings_.multipliers[j + 1];
    return static_cast<int64_t>(settings_.offsets[head] + mixed % settings_.sizes[head]);
  }

  NgramSettings settings_;
};

}  // namespace

OperationPtr MakePreviousTokens(int64_t n, int32_t end) {
  return std::make_shared<PreviousTokens>(n, end);
}
OperationPtr MakeNgramEmbed(const NgramSettings& settings) {
  return std::make_shared<NgramEmbed>(settings);
}

}  // namespace lockstep
