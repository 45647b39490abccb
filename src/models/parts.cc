#include "models/parts.h"

#include "base/error.h"
#include "ops/hadamard.h"

namespace lockstep {

Parts::Parts(const ModelSource& source, int64_t width, int64_t vocab, const NormSpec& norm,
             std::vector<StateSpec> states)
    : source_(source),
      width_(width),
      vocab_(vocab),
      norm_(norm),
      build_(source.architecture(), std::move(states)) {}

std::string Parts::Tensor(std::string_view name, std::string_view kind) const {
  if (build_.layer() < 0) return fmt::format("{}.{}", name, kind);
  return fmt::format("blk.{}.{}.{}", build_.layer(), name, kind);
}

std::string Parts::BareTensor(std::string_view name) const { return fmt::format("blk.{}.{}", build_.layer(), name); }

size_t Parts::AddRope(const RopeSpec& rope) {
  std::shared_ptr<const RopeTable> table;
  try {
    table = std::make_shared<const RopeTable>(rope.options);
  } catch (const Error& error) {
    // What the table refuses came from the file's keys.
    throw Refused("{}: {}", Printable(source_.file().name(), 4096), error.what());
  }
  ropes_.push_back(rope);
  angles_.push_back(build_.Apply(fmt::format("angles.{}", angles_.size()), MakeRopeAngles(std::move(table), rope.places), {build_.tokens()}));
  return angles_.size() - 1;
}

ValueId Parts::Scale(std::string_view name, ValueId x, float factor) {
  return factor == 1 ? x : build_.Apply(name, MakeScale(factor), {x});
}

ValueId Parts::Norm(std::string_view name, ValueId x, std::string_view tensor, const Shape& axes) {
  return Norm(name, x, tensor, axes, norm_);
}

ValueId Parts::Norm(std::string_view name, ValueId x, std::string_view tensor, const Shape& axes, const NormSpec& norm) {
  NormForm form;
  form.eps = norm.eps;
  // More than the last axis of x: all of its row.
  form.over = axes.rank() > 1 ? NormOver::kRow : NormOver::kLastAxis;
  std::vector<ValueId> inputs{x, build_.Weight({Tensor(tensor)}, axes)};
  if (norm.kind == NormSpec::Kind::kRms) return build_.Apply(name, MakeRmsNorm(form), std::move(inputs));
  form.biased = Has(tensor, "bias");
  if (form.biased) inputs.push_back(build_.Weight({Tensor(tensor, "bias")}, axes));
  return build_.Apply(name, MakeLayerNorm(form), std::move(inputs));
}

ValueId Parts::PlainNorm(std::string_view name, ValueId x) {
  const Shape& shape = build_.shape(x);
  NormForm form;
  form.eps = norm_.eps;
  form.weighted = false;
  form.size = shape[shape.rank() - 1].size;
  return build_.Apply(name, norm_.kind == NormSpec::Kind::kRms ? MakeRmsNorm(form) : MakeLayerNorm(form), {x});
}

ValueId Parts::Rotated(std::string_view name, ValueId x, int64_t d, bool rotates) {
  return rotates && HadamardBlock(d) > 1 ? build_.Apply(name, MakeHadamard(d), {x}) : x;
}

ValueId Parts::Project(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes, const Fused& fused) {
  WeightSource weight{Tensor(tensor)}, bias{Tensor(tensor, "bias")};
  if (tensor.empty() || (!fused.tensor.empty() && !Has(tensor) && Has(fused.tensor))) {
    weight = {Tensor(fused.tensor), fused.row, fused.rows, fused.run_rows, fused.run_stride};
    bias = {Tensor(fused.tensor, "bias"), fused.row, fused.rows, fused.run_rows, fused.run_stride};
  }
  Shape matrix, vector;
  for (const Axis& axis : axes) matrix.Append(axis), vector.Append(axis);
  matrix.Append(Width());
  const ValueId y = build_.Apply(name, MakeLinear(0), {x, build_.Weight(weight, matrix)});
  if (!source_.HasTensor(bias.tensor)) return y;
  return build_.Apply(fmt::format("{}_biased", name), MakeAddBias(), {y, build_.Weight(bias, vector)});
}

ValueId Parts::ProjectBack(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes, int64_t unit) {
  Shape matrix{Width()};
  for (const Axis& axis : axes) matrix.Append(axis);
  const ValueId y = build_.Apply(name, MakeLinear(unit), {x, build_.Weight({Tensor(tensor)}, matrix)});
  if (!Has(tensor, "bias")) return y;
  return build_.Apply(fmt::format("{}_biased", name), MakeAddBias(), {y, build_.Weight({Tensor(tensor, "bias")}, {Width()})});
}

}  // namespace lockstep
