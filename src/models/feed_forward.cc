#include "models/feed_forward.h"

#include "base/error.h"

namespace lockstep {

ValueId BuildFeedForward(Parts& parts, ValueId x, const FeedForwardSpec& spec) {
  const Axis f{'f', spec.width, 1};
  auto named = [&](std::string_view name) { return fmt::format("{}{}", name, spec.suffix); };
  const std::string gate_tensor = named("ffn_gate"), up_tensor = named("ffn_up");
  ValueId gate, up;
  if (spec.gate_in_up && !parts.Has(gate_tensor)) {
    gate = parts.Project(named("gate"), x, gate_tensor, {f}, {up_tensor, 0, 2 * spec.width});
    up = parts.Project(named("up"), x, named("ffn_up_part"), {f}, {up_tensor, spec.width, 2 * spec.width});
  } else {
    gate = parts.Project(named("gate"), x, gate_tensor, {f});
    up = parts.Project(named("up"), x, up_tensor, {f});
  }
  const ValueId h = parts.Apply(named("gated"), MakeActivateGated(spec.gating), {gate, up});
  return parts.ProjectBack(named("ff"), h, named("ffn_down"), {f}, 1);
}

}  // namespace lockstep
