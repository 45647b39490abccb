// The operations that route tokens to experts, as steps; each takes a share of the tokens.
#include "ops/operations.h"

namespace lockstep {
namespace {

const float* VectorOf(const StepContext& step, size_t i) {
  return i < step.in.size() ? std::get<std::span<const float>>(step.in[i]).data() : nullptr;
}

class Softmax final : public Operation {
 public:
  std::string_view name() const override { return "softmax"; }
  std::string_view rule() const override { return kSoftmaxRule; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t)
      step.kernels.softmax(x.row(t), x.width, y.row(t));
  }
};

class TopExpertsOperation final : public Operation {
 public:
  TopExpertsOperation(const TopExpertsSettings& settings, bool biased)
      : settings_(settings), biased_(biased) {}
  std::string_view name() const override { return "top_experts"; }
  std::string_view rule() const override {
    return biased_ ? kTopExpertsBiasedRule : kTopExpertsRule;
  }
  std::string attributes() const override {
    std::string text = fmt::format("{}", settings_.used);
    if (settings_.groups > 1) {
      text += fmt::format(" groups={}/{} by {}", settings_.used_groups, settings_.groups,
                          settings_.groups_by_best_two ? "two" : "one");
    }
    return text;
  }
  FactorRule::OwnAxes own_axes() const override { return {{'u', Axis{'u', settings_.used, 1}}}; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &scores = step.in_rows(0), &ids = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      if (!TopExperts(settings_, scores.row(t), VectorOf(step, 1), scores.width, ids.row(t)))
        step.faults->Report(step.row_index[static_cast<size_t>(t)], step.step);
    }
  }

 private:
  TopExpertsSettings settings_;
  bool biased_;
};

class ExpertWeightsOperation final : public Operation {
 public:
  ExpertWeightsOperation(const ExpertWeightsSettings& settings, bool scaled)
      : settings_(settings), scaled_(scaled) {}
  std::string_view name() const override { return "expert_weights"; }
  std::string_view rule() const override {
    return scaled_ ? kExpertWeightsScaledRule : kExpertWeightsRule;
  }
  std::string attributes() const override {
    static constexpr std::string_view kNames[] = {"", "by sum ", "softmax "};
    return fmt::format("{}scale={}", kNames[static_cast<size_t>(settings_.normalize)],
                       settings_.scale);
  }
  OperandKind operand(size_t i) const override {
    return i < 2 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &scores = step.in_rows(0), &ids = step.in_rows(1), &weights = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      ExpertWeights(settings_, scores.row(t), scores.width, ids.row(t), ids.width,
                    VectorOf(step, 2), weights.row(t));
    }
  }

 private:
  ExpertWeightsSettings settings_;
  bool scaled_;
};

}  // namespace

OperationPtr MakeSoftmax() { return std::make_shared<Softmax>(); }
OperationPtr MakeTopExperts(const TopExpertsSettings& settings, bool biased) {
  return std::make_shared<TopExpertsOperation>(settings, biased);
}
OperationPtr MakeExpertWeights(const ExpertWeightsSettings& settings, bool scaled) {
  return std::make_shared<ExpertWeightsOperation>(settings, scaled);
}

}  // namespace lockstep
