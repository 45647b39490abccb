#include "ops/elementwise.h"

#include <cmath>

#include "ops/operations.h"

namespace lockstep {

void AddRowsReference(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void AddScaledRowsReference(const float* a, const float* b, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(b[i], scale, a[i]);
}

void MulRowsReference(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void ScaleRowReference(const float* x, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}

namespace {

class MulColumns final : public Operation {
 public:
  std::string_view name() const override { return "mul_columns"; }
  std::string_view rule() const override { return kMulColumnsRule; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kEither; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const float* w = std::get<std::span<const float>>(step.in[1]).data();
    ForShare(step, y.width, [&](int64_t t, int64_t begin, int64_t end) {
      step.kernels.mul(x.row(t) + begin, w + begin, end - begin, y.row(t) + begin);
    });
  }
};

class MulHeads final : public Operation {
 public:
  std::string_view name() const override { return "mul_heads"; }
  std::string_view rule() const override { return kMulHeadsRule; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const auto w = std::get<std::span<const float>>(step.in[1]);
    const int64_t d = x.width / static_cast<int64_t>(w.size());
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (size_t h = 0; h < w.size(); ++h) {
        const int64_t at = static_cast<int64_t>(h) * d;
        step.kernels.scale(x.row(t) + at, w[h], d, y.row(t) + at);
      }
    }
  }
};

class MulEach final : public Operation {
 public:
  std::string_view name() const override { return "mul_each"; }
  std::string_view rule() const override { return kMulEachRule; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &z = step.in_rows(1), &y = step.out_rows();
    const int64_t d = x.width / z.width;
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t i = 0; i < z.width; ++i)
        step.kernels.scale(x.row(t) + i * d, z.row(t)[i], d, y.row(t) + i * d);
    }
  }
};

}  // namespace

OperationPtr MakeMulColumns() { return std::make_shared<MulColumns>(); }
OperationPtr MakeMulEach() { return std::make_shared<MulEach>(); }
OperationPtr MakeMulHeads() { return std::make_shared<MulHeads>(); }

}  // namespace lockstep
