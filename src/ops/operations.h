// The operations a graph is made of. Each pairs a rule and attributes with the kernels that do its share of a step; what it computes
// stands in the header of its kernels.
#pragma once

#include <memory>
#include <optional>

#include "ops/activation.h"
#include "ops/expert_weights.h"
#include "ops/moe_ffn.h"
#include "ops/operation.h"
#include "ops/rope_table.h"
#include "ops/softmax.h"
#include "ops/top_experts.h"

namespace lockstep {

using OperationPtr = std::shared_ptr<const Operation>;

// Rows of a table chosen by token, times `scale`.
OperationPtr MakeEmbed(float scale);
// The same of one part of each row: the table is [v, l, n], the result [t, n] of l = part.
OperationPtr MakeEmbedPart(float scale, int64_t part);
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
// Groups of d numbers, each over its own root mean square, with a weight for each number of a row. Groups are the axis after t.
OperationPtr MakeGroupedRmsNorm(float eps, int64_t d);
// Heads of d numbers divided by their length.
OperationPtr MakeL2Norm(float eps, int64_t d);
OperationPtr MakeLayerNorm(const NormForm& form);
// cos and sin of the batch's positions, and their application to heads. [t, cos.. sin..]
struct RopePlaces {
  int64_t pool = 1;       // positions are rounded down to multiples of it
  bool backward = false;  // turns back: the sines' signs change
};
OperationPtr MakeRopeAngles(std::shared_ptr<const RopeTable> table, const RopePlaces& places = {});
// Which elements of a head turn together (ops/rope.h).
enum class RopePairing { kHalves, kPairs };
// Of each head of d numbers, n_rot from `first` on turn.
OperationPtr MakeRope(RopePairing pairing, int64_t n_rot, int64_t d, int64_t first = 0);
OperationPtr MakeKvAppend();
// Keys alone, where there is no V, or where it is in K. Of a state with pools, only tokens that complete a pool write their row, as its entry.
OperationPtr MakeKvAppendKeys();

struct AttentionSettings {
  float scale = 1;
  float soft_cap = 0;  // 0: none
  int64_t window = 0;  // positions seen, 0: all
  bool sinks = false;  // a fourth operand, [g, r]
  int64_t first = 0;   // position from which on there are any
  SeenEnd seen_end = SeenEnd::kOwn;
};
OperationPtr MakeAttention(const AttentionSettings& settings);

struct CausalConvSettings {
  bool bias = false;  // a third operand, before the state
  int64_t dilation = 1;  // rows from tap to tap
  std::optional<Activation> activation;
};
// x [t, *], filters [*, taps], state [(taps - 1) dilation, *], whose log row is [*] (ops/causal_conv.h).
OperationPtr MakeCausalConv(const CausalConvSettings& settings);

struct LinearAttentionSettings {
  int64_t dk = 0, dv = 0;
  bool delta = true;
  bool channel_decay = false;  // decay [t, g, r, dk] instead of [t, g, r]
  bool tiled = false;          // heads of v are [r, g] instead of [g, r]
  float scale = 1;
};
// q, k [t, g, dk], v [t, g, r, dv], decay, beta [t, g, r], state [g, r, dk, dv] (ops/linear_attention.h).
OperationPtr MakeLinearAttention(const LinearAttentionSettings& settings);
// What one token adds to the log of such a state, whose heads are [outer, inner].
Shape LinearAttentionLogRow(const LinearAttentionSettings& settings, const Axis& outer,
                            const Axis& inner);

OperationPtr MakeAdd();
OperationPtr MakeAddBias();
OperationPtr MakeMul();
// y = x w, a weight for each column.
OperationPtr MakeMulColumns();
// y = x w, a weight for each row of the last axis.
OperationPtr MakeMulHeads();
// y = x z: each run of the last axis of x times one number of z.
OperationPtr MakeMulEach();
// a, b [t, g, k] -> [t, g] (ops/dot_gate.h).
OperationPtr MakeDotGate(float scale);
// y = x c
OperationPtr MakeScale(float factor);
// Rotates each head of d numbers (ops/hadamard.h).
OperationPtr MakeHadamard(int64_t d);
// y = x (1 + beta log(1 + floor(position / length))): attention temperature by position (Llama 4, Ministral 3)
OperationPtr MakePositionScale(float beta, int64_t length);
OperationPtr MakeSoftCap(float cap);
OperationPtr MakeActivate(Activation activation);
OperationPtr MakeActivateGated(const Gating& gating);

// Mixtures of experts: scores [t, e] of a router (a linear, then MakeSoftmax or MakeActivate) become ids [t, u] and weights [t, u].
OperationPtr MakeSoftmax();
// biased: a second operand [e] that takes part in the choice only.
OperationPtr MakeTopExperts(const TopExpertsSettings& settings, bool biased);
// scores, ids; scaled: a third operand [e], each expert's own scale.
OperationPtr MakeExpertWeights(const ExpertWeightsSettings& settings, bool scaled);
// x, ids, weights, the weights of the experts (ops/moe_ffn.h). `part`: what of the model's experts they hold.
OperationPtr MakeMoeFfn(const MoeSettings& settings, const MoePart& part = {});

}  // namespace lockstep
