#include "ops/dot_gate.h"

#include <algorithm>
#include <cmath>

#include "ops/operations.h"
#include "ops/row_reference.h"
#include "simd/scalar.h"

namespace lockstep {

float DotRowsReference(const float* a, const float* b, int64_t n) {
  return SumInLanes(n, [&](float lane, int64_t i) { return std::fma(a[i], b[i], lane); });
}

float DotGate(float dot, float scale) {
  const float d = dot * scale, root = std::sqrt(std::max(std::fabs(d), 1e-6f));
  return scalar::Sigmoid(d == 0 ? 0 : std::copysign(root, d));
}

namespace {

class DotGateOperation final : public Operation {
 public:
  explicit DotGateOperation(float scale) : scale_(scale) {}
  std::string_view name() const override { return "dot_gate"; }
  std::string_view rule() const override { return kDotGateRule; }
  std::string attributes() const override { return fmt::format("scale={}", scale_); }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &a = step.in_rows(0), &b = step.in_rows(1), &y = step.out_rows();
    const int64_t width = a.width / y.width;
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t g = 0; g < y.width; ++g) {
        const float dot = step.kernels.dot_rows(a.row(t) + g * width, b.row(t) + g * width, width);
        y.row(t)[g] = DotGate(dot, scale_);
      }
    }
  }

 private:
  float scale_;
};

}  // namespace

OperationPtr MakeDotGate(float scale) { return std::make_shared<DotGateOperation>(scale); }

}  // namespace lockstep
