#include "models/compressed_attention.h"

#include <cmath>

#include "models/pooled_keys.h"
#include "ops/gathered_attention.h"
#include "ops/head_linear.h"
#include "ops/select_keys.h"

namespace lockstep {
namespace {

// One layer's attention.
class CompressedAttention {
 public:
  CompressedAttention(Parts& parts, const CompressedAttentionSpec& spec)
      : parts_(parts), spec_(spec) {}

  ValueId Build(ValueId x) {
    const ValueId query_latent = BuildQueryLatent(parts_, x, spec_.latent);
    const ValueId q = Rotated(
        "q_rope",
        HeadNorm(Linear("q", query_latent, "attn_q_b", {kOneHead, Heads(), Dims()}, QueryRank())),
        spec_.d, spec_.here);
    const ValueId k =
        Rotated("k_rope",
                parts_.Norm("k", parts_.Project("k_raw", x, "attn_kv", {kOneHead, Dims()}),
                            "attn_kv_a_norm", {Dims()}),
                spec_.d, spec_.here);
    const ValueId state = parts_.build().LatentState("kv", spec_.d, spec_.d);
    parts_.Apply("append", MakeKvAppendKeys(),
                 {parts_.RotatedKeys("k_rotated", k, spec_.d), state});
    const ValueId attended =
        Attend(x, query_latent, parts_.RotatedKeys("q_rotated", q, spec_.d), state);
    const ValueId heads =
        Rotated("heads_back", parts_.RotatedKeys("heads_rotated_back", attended, spec_.d), spec_.d,
                spec_.back);
    const Axis group{'g', spec_.groups, 1}, rank{'d', spec_.o_rank, spec_.o_rank};
    const Axis in{'k', spec_.latent.heads / spec_.groups * spec_.d, spec_.d};
    const ValueId grouped = parts_.Apply(
        "grouped", MakeGroupedLinear(),
        {heads, parts_.build().Weight({parts_.Tensor("attn_output_a")}, {group, rank, in})});
    return parts_.ProjectBack("attn", grouped, "attn_output_b", {group, rank}, spec_.o_rank);
  }

 private:
  static constexpr Axis kOneHead{'g', 1, 1};
  Axis Heads() const { return {'r', spec_.latent.heads, 1}; }
  Axis Dims() const { return {'d', spec_.d, spec_.d}; }
  Axis QueryRank() const { return {'d', spec_.latent.q_rank, spec_.latent.q_rank}; }

  ValueId Linear(std::string_view name, ValueId x, std::string_view tensor,
                 const std::vector<Axis>& out, const Axis& in) {
    Shape shape;
    for (const Axis& axis : out) shape.Append(axis);
    shape.Append(in);
    return parts_.Apply(name, MakeLinear(0),
                        {x, parts_.build().Weight({parts_.Tensor(tensor)}, shape)});
  }
  ValueId HeadNorm(ValueId q) {
    NormForm form;
    form.eps = parts_.norm().eps;
    form.weighted = false;
    form.size = spec_.d;
    return parts_.Apply("q_norm", MakeRmsNorm(form), {q});
  }
  // The last numbers of a head of d are rotated.
  ValueId Rotated(std::string_view name, ValueId x, int64_t d, size_t rope) {
    const RopeSpec& of = parts_.rope(rope);
    return parts_.Apply(name, MakeRope(of.pairing, of.options.n_rot, d, d - of.options.n_rot),
                        {x, parts_.angles(rope)});
  }

  ValueId Attend(ValueId x, ValueId query_latent, ValueId q, ValueId state) {
    GatheredAttentionSettings settings;
    settings.attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.d)));
    settings.attention.window = spec_.window;
    settings.attention.sinks = true;
    const ValueId sinks = parts_.build().Weight({parts_.Tensor("attn_sinks")}, {kOneHead, Heads()});
    if (spec_.pool == 0)
      return parts_.Apply("heads", MakeAttention(settings.attention), {q, state, state + 1, sinks});
    settings.with_entries = true;
    settings.most_rows = spec_.window + spec_.context / spec_.pool;
    std::vector<ValueId> inputs = {q, state, state + 1,
                                   Compressed("entries", "attn_compressor", x, spec_.d, true)};
    if (spec_.indexer.heads != 0) {
      settings.entries_selected = true;
      settings.most_rows = spec_.window + spec_.indexer.top_k;
      inputs.push_back(Selected(x, query_latent));
    }
    inputs.push_back(sinks);
    return parts_.Apply("heads", MakeGatheredAttention(settings), std::move(inputs));
  }

  // A state of compressed keys of d numbers, and whether they are values too.
  ValueId Compressed(std::string_view name, std::string_view tensors, ValueId x, int64_t d,
                     bool with_values) {
    PooledKeysSpec keys{{.pool = spec_.pool, .d = d, .overlap = spec_.overlap}, with_values, {}};
    const Axis w{'d', keys.pooling.channels(), keys.pooling.channels()};
    const auto named = [&](std::string_view part) { return fmt::format("{}_{}", name, part); };
    const auto tensor = [&](std::string_view part) { return fmt::format("{}_{}", tensors, part); };
    keys.finish = [&](ValueId pooled) {
      return Rotated(named("rope"),
                     parts_.Norm(named("norm"), pooled, tensor("norm"), {Axis{'d', d, d}}), d,
                     spec_.pooled);
    };
    const ValueId values = parts_.Project(named("values"), x, tensor("kv"), {kOneHead, w});
    const ValueId gates = parts_.Project(named("gates"), x, tensor("gate"), {kOneHead, w});
    return BuildPooledKeys(parts_, name, values, gates, tensor("ape"), keys);
  }

  ValueId Selected(ValueId x, ValueId query_latent) {
    const IndexerSpec& indexer = spec_.indexer;
    const Axis heads{'r', indexer.heads, indexer.heads}, d{'d', indexer.d, indexer.d};
    const ValueId q =
        Rotated("index_q_rope",
                Linear("index_q", query_latent, "indexer.attn_q_b", {heads, d}, QueryRank()),
                indexer.d, spec_.here);
    const ValueId weights = parts_.Scale(
        "index_weights_scaled", parts_.Project("index_weights", x, "indexer.proj", {heads}),
        static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.heads))));
    SelectKeysSettings settings;
    settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.d)));
    settings.top_k = indexer.top_k;
    settings.pool = spec_.pool;
    settings.entries = true;
    return parts_.Apply("selected", MakeSelectKeys(settings),
                        {parts_.RotatedKeys("index_q_rotated", q, indexer.d), weights,
                         Compressed("index", "indexer_compressor", x, indexer.d, false)});
  }

  Parts& parts_;
  const CompressedAttentionSpec& spec_;
};

}  // namespace

ValueId BuildCompressedAttention(Parts& parts, ValueId x, const CompressedAttentionSpec& spec) {
  return CompressedAttention(parts, spec).Build(x);
}

}  // namespace lockstep
