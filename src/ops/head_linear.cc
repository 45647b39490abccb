#include "ops/head_linear.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/multiplied_rows.h"

namespace lockstep {
namespace {

class HeadLinear final : public Operation {
 public:
  HeadLinear(std::string_view name, std::string_view rule) : name_(name), rule_(rule) {}
  std::string_view name() const override { return name_; }
  std::string_view rule() const override { return rule_; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kExperts;
  }
  std::vector<size_t> multiplied_by(size_t i) const override {
    return i == 0 ? std::vector<size_t>{1} : std::vector<size_t>{};
  }
  // Runs of panels, which no head shares with another.
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand>, int64_t) const override {
    return kMatMulScratchBytes;
  }
  void Run(const StepContext& step) const override {
    const Experts heads = std::get<Experts>(step.in[1]);
    const int64_t panels = heads[0].panels();
    const WorkRange share = step.Share(std::ssize(heads) * panels);
    for (int64_t first = share.begin; first < share.end;) {
      const int64_t head = first / panels, end = std::min(share.end, (head + 1) * panels);
      const PackedMatrix& w = heads[static_cast<size_t>(head)];
      MatMulTask task = TaskOf(step, w, head);
      task.panel_begin = first - head * panels;
      task.panel_end = end - head * panels;
      step.kernels.matmul(task);
      first = end;
    }
  }
  // Each head's numbers stand side by side in a row.
  void ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see) const override {
    const Experts heads = std::get<Experts>(step.in[1]);
    std::vector<float> buffer;
    for (int64_t t = 0; t < step.tokens(); ++t) {
      for (int64_t h = 0; h < std::ssize(heads); ++h) {
        const int64_t k = heads[static_cast<size_t>(h)].k;
        see(1, h, MultipliedRow(step.in[0], t, h * k, k, buffer));
      }
    }
  }

 private:
  static MatMulTask TaskOf(const StepContext& step, const PackedMatrix& w, int64_t head) {
    MatMulTask task{};
    task.w = &w;
    task.tokens = step.tokens();
    task.y = step.out_rows().data + head * w.n;
    task.y_stride = step.out_rows().width;
    task.scratch = step.scratch.data();
    if (!w.quantized()) {
      task.x = step.in_rows(0).data + head * w.k;
      task.x_stride = step.in_rows(0).width;
      return task;
    }
    task.q = std::get<QuantizedRows>(step.in[0]).FromColumn(head * w.k);
    return task;
  }

  std::string_view name_, rule_;
};

}  // namespace

OperationPtr MakeHeadLinear() {
  return std::make_shared<HeadLinear>("head_linear", kHeadLinearRule);
}
OperationPtr MakeGroupedLinear() {
  return std::make_shared<HeadLinear>("grouped_linear", kGroupedLinearRule);
}

}  // namespace lockstep
