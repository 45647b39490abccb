#include "ops/root.h"

#include <cmath>

namespace lockstep {
namespace {

class Root final : public Operation {
 public:
  std::string_view name() const override { return "root"; }
  std::string_view rule() const override { return "* -> *"; }
  Split split() const override { return Split::kEither; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    ForShare(step, y.width, [&](int64_t t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y.row(t)[i] = std::sqrt(x.row(t)[i]);
    });
  }
};

}  // namespace

OperationPtr MakeRoot() { return std::make_shared<Root>(); }

}  // namespace lockstep
