// Activation functions, alone and gating: one table of them for models, references and kernels.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace lockstep {

// X(Name, "spelling"): Name is the function of simd/math.h, where its error bound and limits stand.
#define LOCKSTEP_FOR_EACH_ACTIVATION(X) \
  X(Silu, "silu")                       \
  X(GeluTanh, "gelu_tanh")              \
  X(GeluErf, "gelu_erf")                \
  X(GeluQuick, "gelu_quick")            \
  X(Relu, "relu")                       \
  X(ReluSquared, "relu_squared")        \
  X(Sigmoid, "sigmoid")                 \
  X(Tanh, "tanh")                       \
  X(Softplus, "softplus")               \
  X(Exp, "exp")

enum class Activation {
#define LOCKSTEP_ENUMERATOR(Name, spelling) k##Name,
  LOCKSTEP_FOR_EACH_ACTIVATION(LOCKSTEP_ENUMERATOR)
#undef LOCKSTEP_ENUMERATOR
};

std::string_view ActivationName(Activation activation);
// The activation of this spelling, or nothing.
std::optional<Activation> FindActivation(std::string_view name);

inline constexpr std::string_view kActivateRule = "* -> *";
inline constexpr std::string_view kActivateGatedRule = "*, * -> *";

// y[i] = activation(x[i]) for n elements. y may be x.
using ActivateFn = void(Activation activation, const float* x, int64_t n, float* y);
ActivateFn ActivateReference;

// y[i] = min(activation(min(gate, gate_limit)), activated_limit) * (clamp(up, +-up_limit) + up_offset)
// Without limits: SwiGLU, GeGLU ... (Shazeer 2020). gpt-oss: gelu_quick, gate_limit = up_limit = 7, up_offset = 1.
struct Gating {
  Activation activation = Activation::kSilu;
  float gate_limit = std::numeric_limits<float>::infinity();
  float activated_limit = std::numeric_limits<float>::infinity();
  float up_limit = std::numeric_limits<float>::infinity();
  float up_offset = 0;
};

// gate, up, y: [n]; y may be either. NaN passes through the limits.
using ActivateGatedFn = void(const Gating& gating, const float* gate, const float* up, int64_t n,
                             float* y);
ActivateGatedFn ActivateGatedReference;

}  // namespace lockstep
