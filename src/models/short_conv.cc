#include "models/short_conv.h"

#include "base/error.h"
#include "ops/causal_conv.h"

namespace lockstep {

ValueId BuildConv(Parts& parts, std::string_view name, ValueId x, const ConvSpec& spec) {
  Shape channels, filters, past{Axis{'s', (spec.taps - 1) * spec.dilation, 1}};
  const Shape& shape = parts.build().shape(x);
  for (size_t i = 1; i < shape.rank(); ++i) channels.Append(shape[i]);
  for (const Axis& axis : channels) filters.Append(axis), past.Append(axis);
  filters.Append({'d', spec.taps, spec.taps});
  CausalConvSettings settings;
  settings.bias = parts.Has(spec.tensor, "bias");
  settings.activation = spec.activation;
  settings.dilation = spec.dilation;
  GraphBuilder& build = parts.build();
  std::vector<ValueId> inputs{
      x, build.Weight({parts.Tensor(spec.tensor), spec.row, spec.rows}, filters)};
  if (settings.bias)
    inputs.push_back(
        build.Weight({parts.Tensor(spec.tensor, "bias"), spec.row, spec.rows}, channels));
  inputs.push_back(build.RecurrentState(name, past, channels));
  return parts.Apply(name, MakeCausalConv(settings), std::move(inputs));
}

int64_t ReadConvTaps(const ModelSource& source, std::string_view key) {
  const int64_t taps = source.Count(key);
  if (taps > kMostConvTaps)
    source.Refuse(key, fmt::format("expected at most {}, found {}", kMostConvTaps, taps));
  return taps;
}

}  // namespace lockstep
