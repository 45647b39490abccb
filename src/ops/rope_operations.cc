// Rope as operations: a batch's angles once, then heads that turn by them.
#include <algorithm>

#include "ops/operations.h"
#include "ops/rope.h"

namespace lockstep {
namespace {

class RopeAngles final : public Operation {
 public:
  RopeAngles(std::shared_ptr<const RopeTable> table, const RopePlaces& places)
      : table_(std::move(table)), places_(places) {}
  std::string_view name() const override { return "rope_angles"; }
  std::string_view rule() const override { return "t -> tc"; }
  std::string attributes() const override {
    return fmt::format("pairs={}{}{}", table_->pairs(),
                       places_.pool != 1 ? fmt::format(" pool={}", places_.pool) : "",
                       places_.backward ? " backward" : "");
  }
  FactorRule::OwnAxes own_axes() const override {
    return {{'c', Axis{'d', 2 * table_->pairs(), 1}}};
  }
  OperandKind operand(size_t) const override { return OperandKind::kTokens; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows& y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      const int64_t position = step.rows.places[static_cast<size_t>(t)].position;
      float *cos = y.row(t), *sin = cos + table_->pairs();
      table_->Fill(position / places_.pool * places_.pool, cos, sin);
      for (int64_t i = 0; places_.backward && i < table_->pairs(); ++i) sin[i] = -sin[i];
    }
  }

 private:
  std::shared_ptr<const RopeTable> table_;
  RopePlaces places_;
};

class Rope final : public Operation {
 public:
  Rope(RopePairing pairing, int64_t n_rot, int64_t d, int64_t first)
      : pairing_(pairing), n_rot_(n_rot), d_(d), first_(first) {}
  std::string_view name() const override { return "rope"; }
  std::string_view rule() const override { return "t*d!, tc! -> t*d"; }
  std::string attributes() const override {
    return fmt::format("{} n_rot={}{}", pairing_ == RopePairing::kHalves ? "halves" : "pairs",
                       n_rot_, first_ != 0 ? fmt::format(" first={}", first_) : "");
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &angles = step.in_rows(1), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    auto rotate =
        pairing_ == RopePairing::kHalves ? step.kernels.rope_halves : step.kernels.rope_pairs;
    for (int64_t t = share.begin; t < share.end; ++t) {
      std::copy_n(x.row(t), x.width, y.row(t));
      for (int64_t at = first_; at < x.width; at += d_)
        rotate(y.row(t) + at, angles.row(t), angles.row(t) + n_rot_ / 2, n_rot_);
    }
  }

 private:
  RopePairing pairing_;
  int64_t n_rot_, d_, first_;
};

}  // namespace

OperationPtr MakeRopeAngles(std::shared_ptr<const RopeTable> table, const RopePlaces& places) {
  return std::make_shared<RopeAngles>(std::move(table), places);
}
OperationPtr MakeRope(RopePairing pairing, int64_t n_rot, int64_t d, int64_t first) {
  return std::make_shared<Rope>(pairing, n_rot, d, first);
}

}  // namespace lockstep
