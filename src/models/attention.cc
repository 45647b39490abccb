#include "models/attention.h"

#include <cmath>

#include "ops/gathered_attention.h"

namespace lockstep {
namespace {

float Scale(const AttentionSpec& spec) {
  return spec.scale != 0 ? spec.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(spec.dk)));
}

// Axes of one layer's heads, and where its parts lie in a fused tensor.
struct Heads {
  explicit Heads(const AttentionSpec& spec)
      : g{'g', spec.kv_heads, 1},
        r{'r', spec.heads / spec.kv_heads, 1},
        dk{'d', spec.dk, spec.dk},
        dv{'d', spec.dv, spec.dv},
        q_rows(spec.heads * spec.dk * (spec.gate_in_query ? 2 : 1)),
        k_rows(spec.kv_heads * spec.dk),
        rows(q_rows + k_rows + spec.kv_heads * spec.dv) {}
  Axis g, r, dk, dv;
  int64_t q_rows, k_rows, rows;
};

// Norm and positions of queries ("q") or keys ("k"), in the architecture's order. axes: of x, without t.
ValueId Prepared(Parts& parts, std::string_view which, ValueId x, const AttentionSpec& spec, const Shape& axes) {
  auto norm = [&] {
    if (spec.qk_norm == AttentionSpec::QkNorm::kNone) return;
    const Shape head{axes[axes.rank() - 1]};
    const bool each = spec.qk_norm == AttentionSpec::QkNorm::kHead;
    x = parts.Norm(fmt::format("{}_norm", which), x, fmt::format("attn_{}_norm", which), each ? head : axes);
  };
  if (!spec.norm_after_rope) norm();
  if (spec.rope) {
    const RopeSpec& rope = parts.rope(*spec.rope);
    x = parts.Apply(fmt::format("{}_rope", which), MakeRope(rope.pairing, rope.options.n_rot, spec.dk),
                    {x, parts.angles(*spec.rope)});
  }
  if (spec.norm_after_rope) norm();
  return x;
}

// Each head's query (`first` 0) or gate (dk), where they alternate.
ValueId WithGate(Parts& parts, std::string_view name, ValueId x, const AttentionSpec& spec, const Heads& heads, int64_t first) {
  const bool alone = parts.Has("attn_q") || !parts.Has("attn_qkv");
  const Fused rows{alone ? "attn_q" : "attn_qkv", first, alone ? heads.q_rows : heads.rows, spec.dk, 2 * spec.dk};
  return parts.Project(name, x, "", {heads.g, heads.r, heads.dk}, rows);
}

ValueId Queries(Parts& parts, ValueId x, const AttentionSpec& spec, const Heads& heads) {
  ValueId q = spec.gate_in_query ? WithGate(parts, "q", x, spec, heads, 0)
                                 : parts.Project("q", x, "attn_q", {heads.g, heads.r, heads.dk}, {"attn_qkv", 0, heads.rows});
  q = Prepared(parts, "q", q, spec, {heads.g, heads.r, heads.dk});
  if (spec.temperature_beta == 0) return q;
  return parts.Apply("q_tempered", MakePositionScale(spec.temperature_beta, spec.temperature_length), {q});
}

// values: [t, g, r, d]
ValueId Gated(Parts& parts, ValueId x, ValueId values, const AttentionSpec& spec, const Heads& heads) {
  const Activation activation = spec.gate.value_or(Activation::kSigmoid);
  if (!spec.gate_in_query && parts.source().RowCount(parts.Tensor("attn_gate")) == spec.heads) {
    ValueId gate = parts.Project("gate", x, "attn_gate", {heads.g, heads.r});
    gate = parts.Apply("gate_active", MakeActivate(activation), {gate});
    return parts.Apply("heads_gated", MakeMulEach(), {values, gate});
  }
  const ValueId gate = spec.gate_in_query ? WithGate(parts, "gate", x, spec, heads, spec.dk)
                                          : parts.Project("gate", x, "attn_gate", {heads.g, heads.r, heads.dv});
  return parts.Apply("heads_gated", MakeActivateGated({activation}), {gate, values});
}

// operands: query, keys, values [, sinks]
ValueId Selected(Parts& parts, ValueId x, std::vector<ValueId> operands, const AttentionSettings& settings, const AttentionSpec& spec) {
  const Selection selection = spec.select(parts, x);
  operands.insert(operands.begin() + 3, selection.positions);
  const GatheredAttentionSettings gathered{.attention = settings, .positions_selected = true, .most_rows = selection.most};
  return parts.Apply("heads", MakeGatheredAttention(gathered), operands);
}

}  // namespace

ValueId AppendKeys(Parts& parts, ValueId x, const AttentionSpec& spec) {
  const Heads heads(spec);
  const ValueId projected = parts.Project("k", x, "attn_k", {heads.g, heads.dk}, {"attn_qkv", heads.q_rows, heads.rows});
  ValueId v = projected;
  if (!spec.keys_as_values || parts.Has("attn_v") || parts.Has("attn_qkv")) {
    v = parts.Project("v", x, "attn_v", {heads.g, heads.dv}, {"attn_qkv", heads.q_rows + heads.k_rows, heads.rows});
  }
  if (spec.norm_values) v = parts.PlainNorm("v_norm", v);
  v = parts.Scale("v_scaled", v, spec.value_scale);
  v = parts.RotatedValues("v_rotated", v, spec.dv);
  const ValueId k = parts.RotatedKeys(
      "k_rotated", Prepared(parts, "k", projected, spec, {heads.g, heads.dk}), spec.dk);
  GraphBuilder& build = parts.build();
  const ValueId state = spec.state_slot ? build.OtherState(*spec.state_slot)
                                        : build.State(spec.state, spec.kv_heads, spec.dk, spec.dv);
  parts.Apply("append", MakeKvAppend(), {k, v, state, state + 1});
  parts.SetKv(state);
  return state;
}

ValueId BuildAttention(Parts& parts, ValueId x, const AttentionSpec& spec) {
  const Heads axes(spec);
  const ValueId q = parts.RotatedKeys("q_rotated", Queries(parts, x, spec, axes), spec.dk);
  const ValueId state = spec.kv_layer ? parts.kv(*spec.kv_layer) : AppendKeys(parts, x, spec);
  AttentionSettings settings;
  settings.scale = Scale(spec);
  settings.soft_cap = spec.soft_cap;
  settings.window = spec.window;
  settings.sinks = spec.sinks;
  settings.first = parts.first_position();
  settings.seen_end = spec.seen_end;
  std::vector<ValueId> operands = {q, state, state + 1};
  if (spec.sinks) operands.push_back(parts.build().Weight({parts.Tensor("attn_sinks")}, {axes.g, axes.r}));
  ValueId heads = spec.select ? Selected(parts, x, operands, settings, spec)
                              : parts.Apply("heads", MakeAttention(settings), operands);
  heads = parts.RotatedValues("heads_rotated_back", heads, spec.dv);
  if (spec.gate_in_query || spec.gate) heads = Gated(parts, x, heads, spec, axes);
  return parts.ProjectBack("attn", heads, "attn_output", {axes.g, axes.r, axes.dv}, spec.dv);
}

}  // namespace lockstep
