#include "models/latent_attention.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "models/moe.h"
#include "models/pooled_keys.h"
#include "ops/concat.h"
#include "ops/gathered_attention.h"
#include "ops/head_linear.h"
#include "ops/repeat.h"
#include "ops/select_keys.h"
#include "simd/scalar_math.h"

namespace lockstep {
namespace {

constexpr Axis kOneHead{'g', 1, 1};

// Weights and values of one layer.
class LatentLayer {
 public:
  LatentLayer(Parts& parts, const LatentAttentionSpec& spec) : parts_(parts), spec_(spec) {}

  ValueId Build(ValueId x, ValueId query_latent, const Selection& selection) {
    const ValueId latent =
        parts_.Norm("latent", Latent("latent_raw", x, Rank(), 0), "attn_kv_a_norm", {Rank()});
    const ValueId q = Queries(query_latent);
    if (!absorbed()) return Output(AttendExpanded(q, latent, x));
    const ValueId heads = AttendLatent(q, latent, x, selection);
    return Output(parts_.Apply("values", MakeHeadLinear(), {heads, ValueWeight()}));
  }

 private:
  bool absorbed() const { return spec_.form == LatentForm::kAbsorbed; }
  // Absorbed, all heads ask one KV head; expanded, each has its own.
  Axis Groups() const { return {'g', absorbed() ? 1 : spec_.heads, 1}; }
  Axis PerGroup() const { return {'r', absorbed() ? spec_.heads : 1, 1}; }
  Axis Heads() const { return absorbed() ? PerGroup() : Groups(); }
  Axis Rank() const { return {'d', spec_.kv_rank, spec_.kv_rank}; }
  static Axis Dims(int64_t d) { return {'d', d, d}; }
  int64_t dk() const { return spec_.nope + spec_.rope; }

  // Rows of attn_kv_a_mqa: the latent, then the part with rope.
  ValueId Latent(std::string_view name, ValueId x, const Axis& axis, int64_t row) {
    GraphBuilder& build = parts_.build();
    const auto part = [&](std::string_view kind) {
      return WeightSource{parts_.Tensor("attn_kv_a_mqa", kind), row, spec_.kv_rank + spec_.rope};
    };
    const ValueId y = parts_.Apply(
        name, MakeLinear(0), {x, build.Weight(part("weight"), {kOneHead, axis, parts_.Width()})});
    if (!parts_.Has("attn_kv_a_mqa", "bias")) return y;
    return parts_.Apply(fmt::format("{}_biased", name), MakeAddBias(),
                        {y, build.Weight(part("bias"), {kOneHead, axis})});
  }
  ValueId Rotated(std::string_view name, ValueId x) {
    const RopeSpec& rope = parts_.rope(spec_.rope_index);
    return parts_.Apply(name, MakeRope(rope.pairing, rope.options.n_rot, spec_.rope),
                        {x, parts_.angles(spec_.rope_index)});
  }
  ValueId SharedKey(ValueId x) {
    return Rotated("k_rope", Latent("k_rope_raw", x, Dims(spec_.rope), spec_.kv_rank));
  }

  // Each head's rows [begin, begin + rows) of the `stride` that it has in a tensor of all heads.
  WeightSource HeadRows(std::string_view tensor, int64_t begin, int64_t rows,
                        int64_t stride) const {
    return {parts_.Tensor(tensor), begin, spec_.heads * stride, rows, stride};
  }
  ValueId QueryPart(std::string_view name, ValueId from, int64_t begin, int64_t d) {
    const bool latent = spec_.q_rank != 0;
    const WeightSource source = HeadRows(latent ? "attn_q_b" : "attn_q", begin, d, dk());
    const Axis in = latent ? Dims(spec_.q_rank) : parts_.Width();
    return parts_.Apply(name, MakeLinear(0),
                        {from, parts_.build().Weight(source, {Groups(), PerGroup(), Dims(d), in})});
  }

  // Whether one tensor has the rows of each head's key and then those of its value.
  bool together() const { return !parts_.Has("attn_k_b") && !parts_.Has("attn_v_b"); }
  // [h, c, nope]: from keys' numbers to the latent's.
  ValueId KeyWeight() {
    const Shape shape{Heads(), Rank(), Dims(spec_.nope)};
    if (!together()) return parts_.build().Weight({parts_.Tensor("attn_k_b")}, shape);
    return parts_.build().Weight({.tensor = parts_.Tensor("attn_kv_b"),
                                  .file_rows = spec_.nope + spec_.dv,
                                  .transposed = true},
                                 shape);
  }
  // [h, dv, c]
  ValueId ValueWeight() {
    const Shape shape{Heads(), Dims(spec_.dv), Rank()};
    if (!together()) return parts_.build().Weight({parts_.Tensor("attn_v_b")}, shape);
    return parts_.build().Weight({.tensor = parts_.Tensor("attn_kv_b"),
                                  .row_begin = spec_.nope,
                                  .file_rows = spec_.nope + spec_.dv},
                                 shape);
  }

  // [t, 1, h, ...], in the latent space where absorbed.
  ValueId Queries(ValueId from) {
    ValueId q = QueryPart("q_nope", from, 0, spec_.nope);
    int64_t width = spec_.nope;
    if (spec_.form == LatentForm::kAbsorbed) {
      q = parts_.Apply("q_absorbed", MakeHeadLinear(), {q, KeyWeight()});
      width = spec_.kv_rank;
    }
    if (spec_.rope != 0) {
      const ValueId rotated =
          Rotated("q_rope", QueryPart("q_rope_raw", from, spec_.nope, spec_.rope));
      q = parts_.Apply("q", MakeConcat(width, spec_.rope), {q, rotated});
    }
    if (spec_.temperature_beta == 0) return q;
    return parts_.Apply("q_tempered",
                        MakePositionScale(spec_.temperature_beta, spec_.temperature_length), {q});
  }

  ValueId AttendLatent(ValueId q, ValueId latent, ValueId x, const Selection& selection) {
    ValueId k = latent;
    if (spec_.rope != 0)
      k = parts_.Apply("k", MakeConcat(spec_.kv_rank, spec_.rope), {latent, SharedKey(x)});
    // No block may straddle the latent's end, as the value is the latent alone.
    const int64_t d = std::gcd(spec_.kv_rank, spec_.rope);
    const ValueId state =
        parts_.build().LatentState("kv", spec_.kv_rank + spec_.rope, spec_.kv_rank);
    parts_.Apply("append", MakeKvAppendKeys(), {parts_.RotatedKeys("k_rotated", k, d), state});
    std::vector<ValueId> operands = {parts_.RotatedKeys("q_rotated", q, d), state, state + 1};
    GatheredAttentionSettings settings;
    settings.attention.scale = spec_.scale;
    settings.attention.first = parts_.first_position();
    settings.positions_selected = selection.positions != kNoValue;
    settings.most_rows = selection.most;
    if (settings.positions_selected) operands.push_back(selection.positions);
    OperationPtr attend = settings.positions_selected ? MakeGatheredAttention(settings)
                                                      : MakeAttention(settings.attention);
    return parts_.RotatedKeys("heads_rotated_back",
                              parts_.Apply("heads", std::move(attend), std::move(operands)), d);
  }

  // Every head has keys and values of its own, made from the latent; the rotated part is the same in each.
  ValueId AttendExpanded(ValueId q, ValueId latent, ValueId x) {
    const WeightSource key_source =
        together()
            ? WeightSource{.tensor = parts_.Tensor("attn_kv_b"), .file_rows = spec_.nope + spec_.dv}
            : WeightSource{.tensor = parts_.Tensor("attn_k_b"), .transposed = true};
    const ValueId repeated =
        parts_.Apply("latents", MakeRepeat(spec_.heads, spec_.kv_rank), {latent});
    const Shape key_shape{Heads(), Dims(spec_.nope), Rank()};
    ValueId k = parts_.Apply("k_nope", MakeHeadLinear(),
                             {repeated, parts_.build().Weight(key_source, key_shape)});
    if (spec_.rope != 0) {
      const ValueId shared =
          parts_.Apply("k_ropes", MakeRepeat(spec_.heads, spec_.rope), {SharedKey(x)});
      k = parts_.Apply("k", MakeConcat(spec_.nope, spec_.rope), {k, shared});
    }
    const ValueId v = parts_.RotatedValues(
        "v_rotated", parts_.Apply("v", MakeHeadLinear(), {repeated, ValueWeight()}), spec_.dv);
    const ValueId state = parts_.build().State("kv", spec_.heads, dk(), spec_.dv);
    parts_.Apply("append", MakeKvAppend(),
                 {parts_.RotatedKeys("k_rotated", k, dk()), v, state, state + 1});
    AttentionSettings settings;
    settings.scale = spec_.scale;
    settings.first = parts_.first_position();
    const ValueId heads =
        parts_.Apply("heads", MakeAttention(settings),
                     {parts_.RotatedKeys("q_rotated", q, dk()), state, state + 1});
    return parts_.RotatedValues("heads_rotated_back", heads, spec_.dv);
  }

  ValueId Output(ValueId values) {
    return parts_.ProjectBack("attn", values, "attn_output", {Groups(), PerGroup(), Dims(spec_.dv)},
                              spec_.dv);
  }

  Parts& parts_;
  const LatentAttentionSpec& spec_;
};

// How YaRN's factor is shared between rope and scores: files state a tenth of the mscale of all dimensions, which is the scores', twice.
// Rope keeps none, as the two mscales of a checkpoint are one number (llama.cpp's files cannot say otherwise).
float ScoreScale(const ModelSource& source, int64_t dk, RopeOptions& rope) {
  const double scale = 1 / std::sqrt(static_cast<double>(dk));
  const auto tenth = source.OptionalFloat("rope.scaling.yarn_log_multiplier");
  if (rope.scaling != RopeScaling::kYarn || !tenth) return static_cast<float>(scale);
  if (!source.OptionalFloat("rope.scaling.yarn_attn_factor")) rope.attention_factor = 1;
  const double mscale = rope.factor <= 1 ? 1 : 1 + double{*tenth} * f64::Log(rope.factor);
  return static_cast<float>(scale * mscale * mscale);
}

}  // namespace

ValueId BuildQueryLatent(Parts& parts, ValueId x, const LatentAttentionSpec& spec) {
  if (spec.q_rank == 0) return x;
  const Axis rank{'d', spec.q_rank, spec.q_rank};
  return parts.Norm("q_latent", parts.Project("q_latent_raw", x, "attn_q_a", {rank}),
                    "attn_q_a_norm", {rank});
}

ValueId BuildLatentAttention(Parts& parts, ValueId x, ValueId query_latent,
                             const LatentAttentionSpec& spec, const Selection& selection) {
  return LatentLayer(parts, spec).Build(x, query_latent, selection);
}

Selection BuildSelection(Parts& parts, ValueId x, ValueId query_latent,
                         const LatentAttentionSpec& spec, const IndexerSpec& indexer) {
  const Axis heads{'r', indexer.heads, indexer.heads}, d{'d', indexer.d, indexer.d},
      rank{'d', spec.q_rank, spec.q_rank};
  const auto rotated = [&](std::string_view name, ValueId value) {
    if (spec.rope == 0) return value;
    return parts.Apply(name, MakeRope(indexer.pairing, spec.rope, indexer.d),
                       {value, parts.angles(spec.rope_index)});
  };
  const ValueId q = parts.Apply(
      "index_q", MakeLinear(0),
      {query_latent, parts.build().Weight({parts.Tensor("indexer.attn_q_b")}, {heads, d, rank})});
  const NormSpec norm{NormSpec::Kind::kLayer, indexer.norm_eps};
  const ValueId normed =
      parts.Norm("index_k", parts.Project("index_k_raw", x, "indexer.attn_k", {kOneHead, d}),
                 "indexer.k_norm", {d}, norm);
  const ValueId k = rotated("index_k_rope", normed);
  ValueId state = kNoValue;
  if (indexer.pool == 1) {
    state = parts.build().LatentState("index", indexer.d, 0);
    parts.Apply("index_append", MakeKvAppendKeys(),
                {parts.RotatedKeys("index_k_rotated", k, indexer.d), state});
  } else {
    const ValueId gates = parts.Project("index_gates", x, "indexer_compressor_gate", {kOneHead, d});
    state = BuildPooledKeys(parts, "index", k, gates, "indexer_compressor_ape",
                            {{.pool = indexer.pool, .d = indexer.d}, false, {}});
  }
  const ValueId weights = parts.Scale(
      "index_weights_scaled", parts.Project("index_weights", x, "indexer.proj", {heads}),
      static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.heads))));
  SelectKeysSettings settings;
  settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.d)));
  settings.top_k = indexer.top_k / indexer.pool;
  settings.pool = indexer.pool;
  settings.first = parts.first_position();
  return {parts.Apply("selected", MakeSelectKeys(settings),
                      {parts.RotatedKeys("index_q_rotated", rotated("index_q_rope", q), indexer.d),
                       weights, state}),
          settings.width()};
}

LatentAttentionSpec ReadLatentAttention(const ModelSource& source, DecoderSpec& spec) {
  LatentAttentionSpec latent;
  const AttentionSpec& attention = spec.layers[0].attention;
  latent.heads = attention.heads;
  for (const LayerSpec& layer : spec.layers) {
    const int64_t kv_heads = layer.attention.kv_heads;
    if (kv_heads <= 1 || kv_heads == attention.heads) continue;
    source.Refuse("attention.head_count_kv",
                  fmt::format("expected 1, or all {} heads, found {}", attention.heads, kv_heads));
  }
  latent.q_rank = source.OptionalCount("attention.q_lora_rank", 0).value_or(0);
  latent.kv_rank = source.Count("attention.kv_lora_rank");
  latent.rope = spec.ropes.empty() ? 0 : spec.ropes[0].options.n_rot;
  // Of one head as the checkpoint has it; older files say so under the plain names, newer ones give those the sizes of what is cached.
  const auto key_length = source.OptionalCount("attention.key_length_mla");
  const int64_t dk = key_length.value_or(attention.dk);
  latent.dv = source.OptionalCount("attention.value_length_mla").value_or(attention.dv);
  if (key_length &&
      (attention.dk != latent.kv_rank + latent.rope || attention.dv != latent.kv_rank)) {
    source.Refuse(
        "attention.key_length",
        fmt::format("expected {} and values of {}, what is cached of a position, found {} and {}",
                    latent.kv_rank + latent.rope, latent.kv_rank, attention.dk, attention.dv));
  }
  latent.nope = dk - latent.rope;
  if (latent.nope < 1 || latent.kv_rank + latent.rope > 1024) {
    source.Refuse("attention.kv_lora_rank",
                  fmt::format("expected at most 1024 with the rotated part of a key, and keys "
                              "wider than that, found a rank of {} and "
                              "keys of {}, {} rotated",
                              latent.kv_rank, dk, latent.rope));
  }
  latent.scale = spec.ropes.empty() ? static_cast<float>(1 / std::sqrt(static_cast<double>(dk)))
                                    : ScoreScale(source, dk, spec.ropes[0].options);
  return latent;
}

IndexerSpec ReadIndexer(const ModelSource& source, RopePairing pairing, int64_t rope) {
  // An indexer's queries are made from the latent of queries.
  source.Count("attention.q_lora_rank");
  IndexerSpec indexer;
  indexer.heads = source.Count("attention.indexer.head_count");
  indexer.d = source.Count("attention.indexer.key_length");
  indexer.top_k = source.Count("attention.indexer.top_k");
  indexer.pairing = pairing;
  indexer.norm_eps = source.FloatOr("attention.layer_norm_epsilon", indexer.norm_eps);
  if (indexer.d > 1024 || indexer.d < rope) {
    source.Refuse("attention.indexer.key_length",
                  fmt::format("expected {} to 1024, found {}", rope, indexer.d));
  }
  indexer.pool = source.OptionalCount("attention.indexer.kpool").value_or(1);
  if (indexer.pool > kPageTokens || !std::has_single_bit(static_cast<uint64_t>(indexer.pool))) {
    source.Refuse(
        "attention.indexer.kpool",
        fmt::format("expected a power of two up to {}, found {}", kPageTokens, indexer.pool));
  }
  if (indexer.top_k > 65536 || indexer.top_k < indexer.pool) {
    source.Refuse("attention.indexer.top_k",
                  fmt::format("expected {} to 65536, found {}", indexer.pool, indexer.top_k));
  }
  return indexer;
}

void UseExperts(const ModelSource& source, DecoderSpec& spec) {
  // What is dense says so, or nothing.
  if (source.OptionalCount("expert_count", 0).value_or(0) == 0) return;
  const bool corrected =
      source.HasTensor(fmt::format("blk.{}.exp_probs_b.bias", spec.layers.size() - 1));
  MoeSpec moe = ReadMoeSpec(
      source, {corrected ? MoeSpec::Scoring::kSigmoid : MoeSpec::Scoring::kSoftmax, false, 1e-20f});
  moe.choice.groups_by_best_two = corrected;
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
}

void UseLatentAttention(DecoderSpec& spec, const LatentAttentionSpec& latent) {
  ForEachLayer(spec, [&](LayerSpec& layer) {
    layer.mixer = [latent](Parts& parts, ValueId x) {
      return BuildLatentAttention(parts, x, BuildQueryLatent(parts, x, latent), latent);
    };
  });
}

void UseSelectedAttention(DecoderSpec& spec, const LatentAttentionSpec& latent,
                          const IndexerSpec& indexer, const std::vector<bool>& own) {
  const auto selection = std::make_shared<Selection>();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool has_own = own[i];
    spec.layers[i].mixer = [=](Parts& parts, ValueId x) {
      const ValueId query_latent = BuildQueryLatent(parts, x, latent);
      if (has_own) *selection = BuildSelection(parts, x, query_latent, latent, indexer);
      return BuildLatentAttention(parts, x, query_latent, latent, *selection);
    };
  }
}

}  // namespace lockstep
