#include "ops/hyper_connections.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "simd/scalar.h"

namespace lockstep {
namespace {

// Divides n numbers, `stride` apart, by their sum + eps.
void DivideBySum(float* x, int64_t n, int64_t stride, float eps) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i * stride];
  for (int64_t i = 0; i < n; ++i) x[i * stride] /= sum + eps;
}

void SoftmaxRow(float* x, int64_t n) {
  const float most = *std::max_element(x, x + n);
  for (int64_t i = 0; i < n; ++i) x[i] = scalar::Exp(x[i] - most);
  DivideBySum(x, n, 1, 0);
}

// Rows of all streams, dealt as the step deals the model's width.
class StreamOperation : public Operation {
 public:
  explicit StreamOperation(const HyperConnections& hyper) : hyper_(hyper) {}
  std::string attributes() const override { return fmt::format("streams={}", hyper_.streams); }
  Split split() const override { return Split::kTokens; }

 protected:
  HyperConnections hyper_;
};

class Weights final : public StreamOperation {
 public:
  using StreamOperation::StreamOperation;
  std::string_view name() const override { return "hyper_weights"; }
  std::string_view rule() const override { return "tm!, m!, s! -> tm"; }
  std::string attributes() const override {
    return fmt::format("streams={} iterations={} eps={}", hyper_.streams, hyper_.iterations,
                       hyper_.eps);
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  void Run(const StepContext& step) const override {
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      float* row = step.out_rows().row(t);
      std::copy_n(step.in_rows(0).row(t), hyper_.weights(), row);
      HyperWeights(hyper_, std::get<std::span<const float>>(step.in[1]),
                   std::get<std::span<const float>>(step.in[2]), row);
    }
  }
};

class Collapse final : public StreamOperation {
 public:
  using StreamOperation::StreamOperation;
  std::string_view name() const override { return "hyper_collapse"; }
  std::string_view rule() const override { return "tn!k, tm! -> tk"; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &w = step.in_rows(1), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      step.kernels.mix_rows({nullptr, 0, x.row(t), y.width, w.row(t), 1, hyper_.streams}, y.width,
                            y.row(t));
    }
  }
};

class Expand final : public StreamOperation {
 public:
  using StreamOperation::StreamOperation;
  std::string_view name() const override { return "hyper_expand"; }
  std::string_view rule() const override { return "tn!k, tm!, tk -> tnk"; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &w = step.in_rows(1), &branch = step.in_rows(2),
               &y = step.out_rows();
    const int64_t n = hyper_.streams, width = branch.width;
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      const float *post = w.row(t) + n, *comb = post + n;
      for (int64_t j = 0; j < n; ++j) {
        step.kernels.mix_rows({branch.row(t), post[j], x.row(t), width, comb + j, n, n}, width,
                              y.row(t) + j * width);
      }
    }
  }
};

class Mean final : public StreamOperation {
 public:
  using StreamOperation::StreamOperation;
  std::string_view name() const override { return "stream_mean"; }
  std::string_view rule() const override { return "tn!k -> tk"; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const float weight = 1 / static_cast<float>(hyper_.streams);
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      step.kernels.mix_rows({nullptr, 0, x.row(t), y.width, &weight, 0, hyper_.streams}, y.width,
                            y.row(t));
    }
  }
};

}  // namespace

void HyperWeights(const HyperConnections& hyper, std::span<const float> base,
                  std::span<const float> scale, float* mixes) {
  const int64_t n = hyper.streams;
  float *post = mixes + n, *comb = mixes + 2 * n;
  for (int64_t i = 0; i < hyper.weights(); ++i) {
    const auto part = static_cast<size_t>(std::min<int64_t>(i / n, 2));
    mixes[i] = std::fma(mixes[i], scale[part], base[static_cast<size_t>(i)]);
  }
  for (int64_t j = 0; j < n; ++j) mixes[j] = scalar::Sigmoid(mixes[j]) + hyper.eps;
  if (hyper.head) return;
  for (int64_t j = 0; j < n; ++j) post[j] = 2 * scalar::Sigmoid(post[j]);
  for (int64_t i = 0; i < n; ++i) {
    SoftmaxRow(comb + i * n, n);
    for (int64_t j = 0; j < n; ++j) comb[i * n + j] += hyper.eps;
  }
  for (int64_t j = 0; j < n; ++j) DivideBySum(comb + j, n, n, hyper.eps);
  for (int64_t round = 1; round < hyper.iterations; ++round) {
    for (int64_t i = 0; i < n; ++i) DivideBySum(comb + i * n, n, 1, hyper.eps);
    for (int64_t j = 0; j < n; ++j) DivideBySum(comb + j, n, n, hyper.eps);
  }
}

OperationPtr MakeHyperWeights(const HyperConnections& hyper) {
  return std::make_shared<Weights>(hyper);
}
OperationPtr MakeHyperCollapse(const HyperConnections& hyper) {
  return std::make_shared<Collapse>(hyper);
}
OperationPtr MakeHyperExpand(const HyperConnections& hyper) {
  return std::make_shared<Expand>(hyper);
}
OperationPtr MakeStreamMean(int64_t streams) {
  return std::make_shared<Mean>(HyperConnections{.streams = streams});
}

}  // namespace lockstep
