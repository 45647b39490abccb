#include "ops/concat.h"

#include <algorithm>

namespace lockstep {
namespace {

class Concat final : public Operation {
 public:
  Concat(int64_t a, int64_t b) : a_(a), b_(b) {}
  std::string_view name() const override { return "concat"; }
  std::string_view rule() const override { return kConcatRule; }
  FactorRule::OwnAxes own_axes() const override { return {{'c', Axis{'d', a_ + b_, a_ + b_}}}; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &z = step.in_rows(1), &y = step.out_rows();
    const int64_t heads = y.width / (a_ + b_);
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      float* to = y.row(t);
      for (int64_t h = 0; h < heads; ++h) {
        to = std::copy_n(x.row(t) + h * a_, a_, to);
        to = std::copy_n(z.row(t) + h * b_, b_, to);
      }
    }
  }

 private:
  int64_t a_, b_;
};

}  // namespace

OperationPtr MakeConcat(int64_t a, int64_t b) { return std::make_shared<Concat>(a, b); }

}  // namespace lockstep
