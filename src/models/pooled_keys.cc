#include "models/pooled_keys.h"

#include "ops/concat.h"

namespace lockstep {

ValueId BuildPooledKeys(Parts& parts, std::string_view name, ValueId values, ValueId gates,
                        std::string_view bias, const PooledKeysSpec& spec) {
  GraphBuilder& build = parts.build();
  PoolKeysSettings pooling = spec.pooling;
  pooling.gated = gates != kNoValue;
  const int64_t w = pooling.channels();
  const auto named = [&](std::string_view part) { return fmt::format("{}_{}", name, part); };
  const ValueId rows =
      pooling.gated ? parts.Apply(named("rows"), MakeConcat(w, w), {values, gates}) : values;
  const ValueId raw = build.LatentState(named("raw"), pooling.gated ? 2 * w : w, 0);
  parts.Apply(named("raw_append"), MakeKvAppendKeys(), {rows, raw});
  std::vector<ValueId> inputs = {build.tokens(), raw};
  if (pooling.gated)
    inputs.push_back(build.Weight({parts.Tensor(bias)},
                                  {Axis{'s', pooling.pool, pooling.pool}, Axis{'d', w, w}}));
  const ValueId pooled = parts.Apply(named("pooled"), MakePoolKeys(pooling), std::move(inputs));
  const ValueId keys = spec.finish ? spec.finish(pooled) : pooled;
  const ValueId state =
      build.LatentState(name, pooling.d, spec.with_values ? pooling.d : 0, pooling.pool);
  parts.Apply(named("append"), MakeKvAppendKeys(),
              {parts.RotatedKeys(named("rotated"), keys, pooling.d), state});
  return state;
}

}  // namespace lockstep
