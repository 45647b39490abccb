#include "models/attention.h"

#include <cmath>

namespace lockstep {
namespace {

float Scale(const AttentionSpec& spec) {
  return spec.scale != 0 ? spec.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(spec.dk)));
}

}  // namespace

ValueId BuildAttention(Parts& parts, ValueId x, const AttentionSpec& spec) {
  const Axis g{'g', spec.kv_heads, 1}, r{'r', spec.heads / spec.kv_heads, 1}, dk{'d', spec.dk, spec.dk}, dv{'d', spec.dv, spec.dv};
  const int64_t q_rows = spec.heads * spec.dk, k_rows = spec.kv_heads * spec.dk, v_rows = spec.kv_heads * spec.dv;
  const int64_t rows = q_rows + k_rows + v_rows;
  const Fused queries = spec.gate_in_query ? Fused{"attn_q", 0, 2 * q_rows, spec.dk, 2 * spec.dk} : Fused{"attn_qkv", 0, rows};
  ValueId q = parts.Project("q", x, spec.gate_in_query ? "" : "attn_q", {g, r, dk}, queries);
  ValueId k = parts.Project("k", x, "attn_k", {g, dk}, {"attn_qkv", q_rows, rows});
  const ValueId v = parts.Project("v", x, "attn_v", {g, dv}, {"attn_qkv", q_rows + k_rows, rows});
  if (spec.qk_norm != AttentionSpec::QkNorm::kNone) {
    const bool head = spec.qk_norm == AttentionSpec::QkNorm::kHead;
    q = parts.Norm("q_norm", q, "attn_q_norm", head ? Shape{dk} : Shape{g, r, dk});
    k = parts.Norm("k_norm", k, "attn_k_norm", head ? Shape{dk} : Shape{g, dk});
  }
  if (spec.rope) {
    const RopeSpec& rope = parts.rope(*spec.rope);
    q = parts.Apply("q_rope", MakeRope(rope.pairing, rope.options.n_rot, spec.dk), {q, parts.angles(*spec.rope)});
    k = parts.Apply("k_rope", MakeRope(rope.pairing, rope.options.n_rot, spec.dk), {k, parts.angles(*spec.rope)});
  }
  if (spec.temperature_beta != 0) {
    q = parts.Apply("q_tempered", MakePositionScale(spec.temperature_beta, spec.temperature_length), {q});
  }
  const ValueId state = parts.build().State("kv", spec.kv_heads, spec.dk, spec.dv);
  parts.Apply("append", MakeKvAppend(), {k, v, state, state + 1});
  AttentionSettings settings;
  settings.scale = Scale(spec);
  settings.soft_cap = spec.soft_cap;
  settings.window = spec.window;
  ValueId heads = parts.Apply("heads", MakeAttention(settings), {q, state, state + 1});
  if (spec.gate_in_query) {
    const ValueId gate = parts.Project("gate", x, "", {g, r, dk}, {"attn_q", spec.dk, 2 * q_rows, spec.dk, 2 * spec.dk});
    heads = parts.Apply("heads_gated", MakeActivateGated({Activation::kSigmoid}), {gate, heads});
  }
  return parts.ProjectBack("attn", heads, "attn_output", {g, r, dv}, spec.dv);
}

}  // namespace lockstep
