// DeepSeek-V4 (DeepSeek-AI 2026): hyper-connected streams; attention over a window of positions and, in most layers, over keys that each stand for
// several, all of them or those that an indexer selects; experts, at first chosen by token.
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "models/hyper_decoder.h"
#include "models/latent_attention.h"
#include "models/moe.h"
#include "models/pooled_keys.h"
#include "ops/gathered_attention.h"
#include "ops/head_linear.h"
#include "ops/select_keys.h"

namespace lockstep {
namespace {

struct CompressedAttentionSpec {
  LatentAttentionSpec latent;  // heads, q_rank, rope
  int64_t d = 0;               // width of a head; K is V
  int64_t window = 0;
  int64_t pool = 0;  // positions of a compressed key, 0: none
  bool overlap = false;
  IndexerSpec indexer;  // no heads: all compressed keys are seen
  int64_t groups = 0, o_rank = 0;
  int64_t context = 0;
  // Of Parts::AddRope: at a token's position, turned back from it, and at a pool's first position.
  size_t here = 0, back = 0, pooled = 0;
};

// One layer's attention.
class CompressedAttention {
 public:
  CompressedAttention(Parts& parts, const CompressedAttentionSpec& spec) : parts_(parts), spec_(spec) {}

  ValueId Build(ValueId x) {
    const ValueId query_latent = BuildQueryLatent(parts_, x, spec_.latent);
    const ValueId q = Rotated("q_rope", HeadNorm(Linear("q", query_latent, "attn_q_b", {kOneHead, Heads(), Dims()}, QueryRank())), spec_.d,
                              spec_.here);
    const ValueId k = Rotated("k_rope", parts_.Norm("k", parts_.Project("k_raw", x, "attn_kv", {kOneHead, Dims()}), "attn_kv_a_norm", {Dims()}),
                              spec_.d, spec_.here);
    const ValueId state = parts_.build().LatentState("kv", spec_.d, spec_.d);
    parts_.Apply("append", MakeKvAppendKeys(), {k, state});
    const ValueId heads = Rotated("heads_back", Attend(x, query_latent, q, state), spec_.d, spec_.back);
    const Axis group{'g', spec_.groups, 1}, rank{'d', spec_.o_rank, spec_.o_rank};
    const Axis in{'k', spec_.latent.heads / spec_.groups * spec_.d, spec_.d};
    const ValueId grouped = parts_.Apply("grouped", MakeGroupedLinear(),
                                         {heads, parts_.build().Weight({parts_.Tensor("attn_output_a")}, {group, rank, in})});
    return parts_.ProjectBack("attn", grouped, "attn_output_b", {group, rank}, spec_.o_rank);
  }

 private:
  static constexpr Axis kOneHead{'g', 1, 1};
  Axis Heads() const { return {'r', spec_.latent.heads, 1}; }
  Axis Dims() const { return {'d', spec_.d, spec_.d}; }
  Axis QueryRank() const { return {'d', spec_.latent.q_rank, spec_.latent.q_rank}; }

  ValueId Linear(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& out, const Axis& in) {
    Shape shape;
    for (const Axis& axis : out) shape.Append(axis);
    shape.Append(in);
    return parts_.Apply(name, MakeLinear(0), {x, parts_.build().Weight({parts_.Tensor(tensor)}, shape)});
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
    return parts_.Apply(name, MakeRope(of.pairing, of.options.n_rot, d, d - of.options.n_rot), {x, parts_.angles(rope)});
  }

  ValueId Attend(ValueId x, ValueId query_latent, ValueId q, ValueId state) {
    GatheredAttentionSettings settings;
    settings.attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.d)));
    settings.attention.window = spec_.window;
    settings.attention.sinks = true;
    const ValueId sinks = parts_.build().Weight({parts_.Tensor("attn_sinks")}, {kOneHead, Heads()});
    if (spec_.pool == 0) return parts_.Apply("heads", MakeAttention(settings.attention), {q, state, state + 1, sinks});
    settings.with_entries = true;
    settings.most_rows = spec_.window + spec_.context / spec_.pool;
    std::vector<ValueId> inputs = {q, state, state + 1, Compressed("entries", "attn_compressor", x, spec_.d, true)};
    if (spec_.indexer.heads != 0) {
      settings.entries_selected = true;
      settings.most_rows = spec_.window + spec_.indexer.top_k;
      inputs.push_back(Selected(x, query_latent));
    }
    inputs.push_back(sinks);
    return parts_.Apply("heads", MakeGatheredAttention(settings), std::move(inputs));
  }

  // A state of compressed keys of d numbers, and whether they are values too.
  ValueId Compressed(std::string_view name, std::string_view tensors, ValueId x, int64_t d, bool with_values) {
    PooledKeysSpec keys{{.pool = spec_.pool, .d = d, .overlap = spec_.overlap}, with_values, {}};
    const Axis w{'d', keys.pooling.channels(), keys.pooling.channels()};
    const auto named = [&](std::string_view part) { return fmt::format("{}_{}", name, part); };
    const auto tensor = [&](std::string_view part) { return fmt::format("{}_{}", tensors, part); };
    keys.finish = [&](ValueId pooled) {
      return Rotated(named("rope"), parts_.Norm(named("norm"), pooled, tensor("norm"), {Axis{'d', d, d}}), d, spec_.pooled);
    };
    const ValueId values = parts_.Project(named("values"), x, tensor("kv"), {kOneHead, w});
    const ValueId gates = parts_.Project(named("gates"), x, tensor("gate"), {kOneHead, w});
    return BuildPooledKeys(parts_, name, values, gates, tensor("ape"), keys);
  }

  ValueId Selected(ValueId x, ValueId query_latent) {
    const IndexerSpec& indexer = spec_.indexer;
    const Axis heads{'r', indexer.heads, indexer.heads}, d{'d', indexer.d, indexer.d};
    const ValueId q = Rotated("index_q_rope", Linear("index_q", query_latent, "indexer.attn_q_b", {heads, d}, QueryRank()), indexer.d, spec_.here);
    const ValueId weights = parts_.Scale("index_weights_scaled", parts_.Project("index_weights", x, "indexer.proj", {heads}),
                                         static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.heads))));
    SelectKeysSettings settings;
    settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.d)));
    settings.top_k = indexer.top_k;
    settings.pool = spec_.pool;
    settings.entries = true;
    return parts_.Apply("selected", MakeSelectKeys(settings), {q, weights, Compressed("index", "indexer_compressor", x, indexer.d, false)});
  }

  Parts& parts_;
  const CompressedAttentionSpec& spec_;
};

// A pool for each layer, 0: none. Entries of a page are a power of two.
std::vector<int64_t> ReadPools(const ModelSource& source, size_t layers) {
  constexpr std::string_view kKey = "attention.compress_ratios";
  std::vector<int64_t> pools = source.metadata().RequiredArray<int64_t>(source.Key(kKey), GgufLength::AtLeast(layers));
  pools.resize(layers);
  for (int64_t pool : pools) {
    if (pool < 0 || pool > 65536 || !std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(pool, 1)))) {
      source.Refuse(kKey, fmt::format("expected powers of two up to 65536, or 0, found {}", pool));
    }
  }
  return pools;
}

CompressedAttentionSpec ReadCompressedAttention(const ModelSource& source, const DecoderSpec& spec) {
  CompressedAttentionSpec attention;
  attention.latent.heads = spec.layers[0].attention.heads;
  attention.latent.q_rank = source.Count("attention.q_lora_rank");
  attention.d = spec.layers[0].attention.dk;
  attention.window = source.Count("attention.sliding_window");
  attention.groups = source.Count("attention.output_group_count");
  attention.o_rank = source.Count("attention.output_lora_rank");
  attention.context = spec.ropes[0].options.context;
  // A raw row of overlapping windows has four times a key's numbers.
  if (attention.d > 512 || spec.layers[0].attention.dv != attention.d || spec.layers[0].attention.kv_heads != 1) {
    source.Refuse("attention.key_length", fmt::format("expected one KV head of at most 512 numbers that is its own value, found {} of {} and {}",
                                                      spec.layers[0].attention.kv_heads, attention.d, spec.layers[0].attention.dv));
  }
  if (attention.latent.heads % attention.groups != 0) {
    source.Refuse("attention.output_group_count",
                  fmt::format("expected a divisor of the {} heads, found {}", attention.latent.heads, attention.groups));
  }
  return attention;
}

// Adds the ropes of layers with and without compressed keys; those of a pool are added where a layer first has it.
class Ropes {
 public:
  Ropes(const ModelSource& source, DecoderSpec& spec) : spec_(spec) {
    compressed_ = spec.ropes[0];
    compressed_.options.base = source.Float("attention.compress_rope_freq_base");
    compressed_.options.attention_factor = 1;
    RopeSpec plain;
    plain.pairing = compressed_.pairing;
    plain.options.n_rot = compressed_.options.n_rot;
    plain.options.base = spec.ropes[0].options.base;
    spec.ropes.clear();
    for (const RopeSpec& rope : {plain, compressed_}) {
      Add(rope, {});
      Add(rope, {.backward = true});
    }
  }
  void SetFor(CompressedAttentionSpec& attention) {
    attention.here = attention.pool == 0 ? 0 : 2;
    attention.back = attention.here + 1;
    if (attention.pool == 0) return;
    const auto [at, fresh] = pools_.try_emplace(attention.pool, spec_.ropes.size());
    if (fresh) Add(compressed_, {.pool = attention.pool});
    attention.pooled = at->second;
  }

 private:
  void Add(RopeSpec rope, const RopePlaces& places) {
    rope.places = places;
    spec_.ropes.push_back(rope);
  }

  DecoderSpec& spec_;
  RopeSpec compressed_;
  std::map<int64_t, size_t> pools_;
};

void SetAttention(const ModelSource& source, DecoderSpec& spec) {
  CompressedAttentionSpec attention = ReadCompressedAttention(source, spec);
  const std::vector<int64_t> pools = ReadPools(source, spec.layers.size());
  Ropes ropes(source, spec);
  for (size_t i = 0; i < pools.size(); ++i) {
    attention.pool = pools[i];
    const std::string values = fmt::format("blk.{}.attn_compressor_kv.weight", i);
    attention.overlap = attention.pool != 0 && source.RowCount(values) == 2 * attention.d;
    const bool selects = source.HasTensor(fmt::format("blk.{}.indexer.attn_q_b.weight", i));
    attention.indexer = selects ? ReadIndexer(source, RopePairing::kPairs) : IndexerSpec{};
    ropes.SetFor(attention);
    spec.layers[i].mixer = [attention](Parts& parts, ValueId x) { return CompressedAttention(parts, attention).Build(x); };
  }
}

// One number for all layers, or one for each.
std::vector<float> ReadLimits(const ModelSource& source, std::string_view key, size_t layers) {
  std::vector<float> limits(layers, std::numeric_limits<float>::infinity());
  const auto value = source.metadata().Find(source.Key(key));
  if (!value) return limits;
  if (!std::holds_alternative<GgufArray>(value->data)) return std::vector<float>(layers, source.Float(key));
  const std::vector<float> listed = source.metadata().RequiredArray<float>(source.Key(key), GgufLength::AtLeast(layers));
  std::copy_n(listed.begin(), layers, limits.begin());
  return limits;
}

void SetExpertsByLayer(const ModelSource& source, DecoderSpec& spec) {
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSqrtSoftplus, true, 1e-20f});
  moe.shared = ReadSharedExperts(source, moe);
  const auto hashed = static_cast<size_t>(source.OptionalCount("hash_layer_count", 0).value_or(0));
  const std::vector<float> limits = ReadLimits(source, "swiglu_clamp_exp", spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    moe.chosen_by_token = i < hashed;
    moe.ffn.gating.gate_limit = moe.ffn.gating.up_limit = limits[i];
    if (moe.shared) moe.shared->gating = moe.ffn.gating;
    spec.layers[i].channel_mixer = [moe](Parts& parts, ValueId x) { return BuildMoe(parts, x, moe); };
  }
}

}  // namespace

Graph BuildDeepseek4(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  SetAttention(source, spec);
  SetExpertsByLayer(source, spec);
  return BuildHyperDecoder(source, spec, ReadHyperConnections(source));
}

}  // namespace lockstep
