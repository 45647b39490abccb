#include "ops/l2_norm.h"

#include <cmath>

#include "ops/norm_factor.h"
#include "ops/operations.h"
#include "ops/row_reference.h"

namespace lockstep {

void L2NormReference(const float* x, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  float sum =
      SumInLanes(d, [&](float lane, int64_t i) { return std::fma(s * x[i], s * x[i], lane); });
  float f = NormFactor(sum, 1, s, eps);
  for (int64_t i = 0; i < d; ++i) y[i] = s * x[i] * f;
}

namespace {

class L2NormOperation final : public Operation {
 public:
  L2NormOperation(float eps, int64_t d) : eps_(eps), d_(d) {}
  std::string_view name() const override { return "l2_norm"; }
  std::string_view rule() const override { return kL2NormRule; }
  std::string attributes() const override { return fmt::format("eps={}", eps_); }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t at = 0; at < x.width; at += d_)
        step.kernels.l2_norm(x.row(t) + at, d_, eps_, y.row(t) + at);
    }
  }

 private:
  float eps_;
  int64_t d_;
};

}  // namespace

OperationPtr MakeL2Norm(float eps, int64_t d) { return std::make_shared<L2NormOperation>(eps, d); }

}  // namespace lockstep
