#include "ops/hadamard.h"

#include <cmath>

#include "ops/operations.h"

namespace lockstep {

void HadamardReference(const float* x, int64_t n, int64_t block, float* y) {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
  for (int64_t half = 1; half < block; half *= 2) {
    for (int64_t i = 0; i < n; ++i) {
      if ((i & half) != 0) continue;
      const float a = y[i], b = y[i + half];
      y[i] = a + b;
      y[i + half] = a - b;
    }
  }
}

namespace {

class Hadamard final : public Operation {
 public:
  explicit Hadamard(int64_t d) : d_(d) {}
  std::string_view name() const override { return "hadamard"; }
  std::string_view rule() const override { return kHadamardRule; }
  std::string attributes() const override {
    return fmt::format("d={} block={}", d_, HadamardBlock(d_));
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      step.kernels.hadamard(x.row(t), x.width, HadamardBlock(d_), y.row(t));
    }
  }

 private:
  int64_t d_;
};

}  // namespace

OperationPtr MakeHadamard(int64_t d) { return std::make_shared<Hadamard>(d); }

}  // namespace lockstep
