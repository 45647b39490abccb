#include "models/attention.h"

#include <cmath>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

float Scale(const AttentionSpec& spec) {
  return spec.scale != 0 ? spec.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(spec.dk)));
}

// Norms and positions, in the architecture's order.
std::pair<ValueId, ValueId> Prepared(Parts& parts, ValueId q, ValueId k, const AttentionSpec& spec, const Shape& q_axes, const Shape& k_axes) {
  auto norm = [&] {
    if (spec.qk_norm == AttentionSpec::QkNorm::kNone) return;
    const Shape head{q_axes[2]};
    const bool each = spec.qk_norm == AttentionSpec::QkNorm::kHead;
    q = parts.Norm("q_norm", q, "attn_q_norm", each ? head : q_axes);
    k = parts.Norm("k_norm", k, "attn_k_norm", each ? head : k_axes);
  };
  auto rotate = [&] {
    if (!spec.rope) return;
    const RopeSpec& rope = parts.rope(*spec.rope);
    q = parts.Apply("q_rope", MakeRope(rope.pairing, rope.options.n_rot, spec.dk), {q, parts.angles(*spec.rope)});
    k = parts.Apply("k_rope", MakeRope(rope.pairing, rope.options.n_rot, spec.dk), {k, parts.angles(*spec.rope)});
  };
  if (!spec.norm_after_rope) norm();
  rotate();
  if (spec.norm_after_rope) norm();
  return {q, k};
}

// heads: [t, g, r, d]
ValueId Gated(Parts& parts, ValueId x, ValueId heads, const AttentionSpec& spec) {
  const Shape& shape = parts.build().shape(heads);
  const bool each_head = parts.source().RowCount(parts.Tensor("attn_gate")) == spec.heads;
  std::vector<Axis> axes = {shape[1], shape[2]};
  if (!each_head) axes.push_back(shape[3]);
  ValueId gate = parts.Project("head_gate", x, "attn_gate", axes);
  gate = parts.Apply("head_gate_active", MakeActivate(*spec.gate), {gate});
  return parts.Apply("heads_gated", each_head ? MakeMulEach() : MakeMul(), {heads, gate});
}

}  // namespace

ValueId BuildAttention(Parts& parts, ValueId x, const AttentionSpec& spec) {
  const Axis g{'g', spec.kv_heads, 1}, r{'r', spec.heads / spec.kv_heads, 1}, dk{'d', spec.dk, spec.dk}, dv{'d', spec.dv, spec.dv};
  const int64_t q_rows = spec.heads * spec.dk, k_rows = spec.kv_heads * spec.dk, v_rows = spec.kv_heads * spec.dv;
  const int64_t rows = q_rows + k_rows + v_rows;
  const Fused queries = spec.gate_in_query ? Fused{"attn_q", 0, 2 * q_rows, spec.dk, 2 * spec.dk} : Fused{"attn_qkv", 0, rows};
  ValueId q = parts.Project("q", x, spec.gate_in_query ? "" : "attn_q", {g, r, dk}, queries);
  ValueId k = parts.Project("k", x, "attn_k", {g, dk}, {"attn_qkv", q_rows, rows});
  ValueId v = parts.Project("v", x, "attn_v", {g, dv}, {"attn_qkv", q_rows + k_rows, rows});
  v = parts.Scale("v_scaled", v, spec.value_scale);
  std::tie(q, k) = Prepared(parts, q, k, spec, {g, r, dk}, {g, dk});
  if (spec.temperature_beta != 0) {
    q = parts.Apply("q_tempered", MakePositionScale(spec.temperature_beta, spec.temperature_length), {q});
  }
  const ValueId state = parts.build().State("kv", spec.kv_heads, spec.dk, spec.dv);
  parts.Apply("append", MakeKvAppend(), {k, v, state, state + 1});
  AttentionSettings settings;
  settings.scale = Scale(spec);
  settings.soft_cap = spec.soft_cap;
  settings.window = spec.window;
  settings.sinks = spec.sinks;
  std::vector<ValueId> operands = {q, state, state + 1};
  if (spec.sinks) operands.push_back(parts.build().Weight({parts.Tensor("attn_sinks")}, {g, r}));
  ValueId heads = parts.Apply("heads", MakeAttention(settings), operands);
  if (spec.gate_in_query) {
    const ValueId gate = parts.Project("gate", x, "", {g, r, dk}, {"attn_q", spec.dk, 2 * q_rows, spec.dk, 2 * spec.dk});
    heads = parts.Apply("heads_gated", MakeActivateGated({Activation::kSigmoid}), {gate, heads});
  }
  if (spec.gate) heads = Gated(parts, x, heads, spec);
  return parts.ProjectBack("attn", heads, "attn_output", {g, r, dv}, spec.dv);
}

}  // namespace lockstep
