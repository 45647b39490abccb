#include "ops/activation.h"

#include <algorithm>

#include "simd/scalar.h"

namespace lockstep {

namespace {

struct Row {
  Activation activation;
  std::string_view name;
  float (*function)(float);
};

constexpr Row kRows[] = {
#define LOCKSTEP_ROW(Name, spelling) {Activation::k##Name, spelling, scalar::Name},
    LOCKSTEP_FOR_EACH_ACTIVATION(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
};

const Row& RowOf(Activation activation) { return kRows[static_cast<size_t>(activation)]; }

// The smaller, or x where it is NaN.
float LimitAbove(float limit, float x) { return limit < x ? limit : x; }
float LimitBelow(float limit, float x) { return limit > x ? limit : x; }

}  // namespace

std::string_view ActivationName(Activation activation) { return RowOf(activation).name; }

std::optional<Activation> FindActivation(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.activation;
  }
  return std::nullopt;
}

void ActivateReference(Activation activation, const float* x, int64_t n, float* y) {
  const Row& row = RowOf(activation);
  for (int64_t i = 0; i < n; ++i) y[i] = row.function(x[i]);
}

void ActivateGatedReference(const Gating& gating, const float* gate, const float* up, int64_t n,
                            float* y) {
  const Row& row = RowOf(gating.activation);
  for (int64_t i = 0; i < n; ++i) {
    float g = row.function(LimitAbove(gating.gate_limit, gate[i]));
    float u = LimitBelow(-gating.up_limit, LimitAbove(gating.up_limit, up[i]));
    y[i] = LimitAbove(gating.activated_limit, g) * (u + gating.up_offset);
  }
}

}  // namespace lockstep
