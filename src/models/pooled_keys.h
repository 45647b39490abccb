// Keys that each stand for a pool of positions (ops/pool_keys.h) as a piece of a layer: every position caches a raw row, the last of a pool the key.
#pragma once

#include <functional>

#include "models/parts.h"
#include "ops/pool_keys.h"

namespace lockstep {

struct PooledKeysSpec {
  PoolKeysSettings pooling;
  // Whether the key is its own value too; otherwise it only scores.
  bool with_values = false;
  // From pooled rows [t, 1, d] to keys: norm, rope. Null: they are keys as they are.
  std::function<ValueId(ValueId pooled)> finish;
};

// Values and gates of the raw rows, [t, 1, w]; without gates (kNoValue) keys are means. Keys are cached rotated where the run asks for it, raw rows never: their gates have each number weighted by itself. bias: tensor of the layer that the gates get by their place
// in a pool, [pool, w]. Result: the state of the keys. Values of the graph are named after `name`.
ValueId BuildPooledKeys(Parts& parts, std::string_view name, ValueId values, ValueId gates,
                        std::string_view bias, const PooledKeysSpec& spec);

}  // namespace lockstep
