#include "ops/repeat.h"

#include <algorithm>

namespace lockstep {
namespace {

class Repeat final : public Operation {
 public:
  Repeat(int64_t heads, int64_t d) : heads_(heads), d_(d) {}
  std::string_view name() const override { return "repeat"; }
  std::string_view rule() const override { return kRepeatRule; }
  FactorRule::OwnAxes own_axes() const override { return {{'h', Axis{'g', heads_, 1}}}; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t h = 0; h < heads_; ++h) std::copy_n(x.row(t), d_, y.row(t) + h * d_);
    }
  }

 private:
  int64_t heads_, d_;
};

}  // namespace

OperationPtr MakeRepeat(int64_t heads, int64_t d) { return std::make_shared<Repeat>(heads, d); }

}  // namespace lockstep
