// The operations a graph is made of. Each pairs a rule and attributes with the kernels that do its share of a step; what it computes
// stands in the header of its kernels.
#pragma once

#include <memory>

#include "ops/activation.h"
#include "ops/operation.h"
#include "ops/rope_table.h"

namespace lockstep {

using OperationPtr = std::shared_ptr<const Operation>;

// Rows of a table chosen by token, times `scale`.
OperationPtr MakeEmbed(float scale);
// y = x W^T. x: [t, *], W: [+, *], summed over the run `*`. `cut_unit`: the summed run may be cut over ranks at multiples of it, so it is
// summed in segments (formats/gemm.h); 0: it never is.
OperationPtr MakeLinear(int64_t cut_unit);
// Activations in 8-bit codes for MakeLinear; inserted when compiling, never written by a model.
OperationPtr MakeQuantize();
// Rows of a batch whose results are asked for; inserted when compiling.
OperationPtr MakeSelectRows();
// What a norm is taken over, and which vectors follow x: a weight, then a bias.
enum class NormOver { kLastAxis, kRow };
struct NormForm {
  float eps = 1e-5f;
  NormOver over = NormOver::kLastAxis;
  bool weighted = true;
  bool biased = false;  // layer norm with a weight only
  int64_t size = 0;     // of the last axis, where neither a weight nor the row tells it
};
OperationPtr MakeRmsNorm(const NormForm& form);
OperationPtr MakeLayerNorm(const NormForm& form);
// cos and sin of the batch's positions, and their application to heads. [t, cos.. sin..]
OperationPtr MakeRopeAngles(std::shared_ptr<const RopeTable> table);
// Which elements of a head turn together (ops/rope.h).
enum class RopePairing { kHalves, kPairs };
OperationPtr MakeRope(RopePairing pairing, int64_t n_rot, int64_t d);
OperationPtr MakeKvAppend();

struct AttentionSettings {
  float scale = 1;
  float soft_cap = 0;  // 0: none
  int64_t window = 0;  // positions seen, 0: all
  bool sinks = false;  // a fourth operand, [g, r]
};
OperationPtr MakeAttention(const AttentionSettings& settings);

OperationPtr MakeAdd();
OperationPtr MakeAddBias();
OperationPtr MakeMul();
// y = x c
OperationPtr MakeScale(float factor);
// y = x (1 + beta log(1 + floor(position / length))): attention temperature by position (Llama 4, Ministral 3)
OperationPtr MakePositionScale(float beta, int64_t length);
OperationPtr MakeSoftCap(float cap);
OperationPtr MakeActivate(Activation activation);
OperationPtr MakeActivateGated(const Gating& gating);

}  // namespace lockstep
