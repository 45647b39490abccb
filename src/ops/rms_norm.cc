#include "ops/rms_norm.h"

#include <cmath>

#include "ops/norm_factor.h"
#include "ops/operations.h"
#include "ops/row_reference.h"

namespace lockstep {

void RmsNormReference(const float* x, const float* w, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  float sum =
      SumInLanes(d, [&](float lane, int64_t i) { return std::fma(s * x[i], s * x[i], lane); });
  float f = NormFactor(sum, d, s, eps);
  for (int64_t i = 0; i < d; ++i) {
    y[i] = s * x[i] * f;
    if (w != nullptr) y[i] *= w[i];
  }
}

namespace {

class GroupedRmsNorm final : public Operation {
 public:
  GroupedRmsNorm(float eps, int64_t d) : eps_(eps), d_(d) {}
  std::string_view name() const override { return "grouped_rms_norm"; }
  std::string_view rule() const override { return kGroupedRmsNormRule; }
  std::string attributes() const override { return fmt::format("eps={}", eps_); }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const float* w = std::get<std::span<const float>>(step.in[1]).data();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t at = 0; at < x.width; at += d_)
        step.kernels.rms_norm(x.row(t) + at, w + at, d_, eps_, y.row(t) + at);
    }
  }

 private:
  float eps_;
  int64_t d_;
};

}  // namespace

OperationPtr MakeGroupedRmsNorm(float eps, int64_t d) {
  return std::make_shared<GroupedRmsNorm>(eps, d);
}

}  // namespace lockstep
