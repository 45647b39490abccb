// DeepSeek-V4 (DeepSeek-AI 2026): hyper-connected streams; attention over a window of positions and, in most layers, over keys that each stand for
// several, all of them or those that an indexer selects; experts, at first chosen by token.
#include <bit>
#include <map>

#include "models/compressed_attention.h"
#include "models/hyper_decoder.h"
#include "models/moe.h"

namespace lockstep {
namespace {

// A pool for each layer, 0: none. Entries of a page are a power of two.
std::vector<int64_t> ReadPools(const ModelSource& source, size_t layers) {
  constexpr std::string_view kKey = "attention.compress_ratios";
  std::vector<int64_t> pools =
      source.metadata().RequiredArray<int64_t>(source.Key(kKey), GgufLength::AtLeast(layers));
  pools.resize(layers);
  for (int64_t pool : pools) {
    if (pool < 0 || pool > 65536 ||
        !std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(pool, 1)))) {
      source.Refuse(kKey, fmt::format("expected powers of two up to 65536, or 0, found {}", pool));
    }
  }
  return pools;
}

CompressedAttentionSpec ReadCompressedAttention(const ModelSource& source,
                                                const DecoderSpec& spec) {
  CompressedAttentionSpec attention;
  attention.latent.heads = spec.layers[0].attention.heads;
  attention.latent.q_rank = source.Count("attention.q_lora_rank");
  attention.d = spec.layers[0].attention.dk;
  attention.window = source.Count("attention.sliding_window");
  attention.groups = source.Count("attention.output_group_count");
  attention.o_rank = source.Count("attention.output_lora_rank");
  attention.context = spec.ropes[0].options.context;
  // A raw row of overlapping windows has four times a key's numbers.
  if (attention.d > 512 || spec.layers[0].attention.dv != attention.d ||
      spec.layers[0].attention.kv_heads != 1) {
    source.Refuse(
        "attention.key_length",
        fmt::format("expected one KV head of at most 512 numbers that is its own value, found {} "
                    "of {} and {}",
                    spec.layers[0].attention.kv_heads, attention.d, spec.layers[0].attention.dv));
  }
  if (attention.latent.heads % attention.groups != 0) {
    source.Refuse("attention.output_group_count",
                  fmt::format("expected a divisor of the {} heads, found {}",
                              attention.latent.heads, attention.groups));
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
  const int64_t n_rot = spec.ropes[0].options.n_rot;
  Ropes ropes(source, spec);
  for (size_t i = 0; i < pools.size(); ++i) {
    attention.pool = pools[i];
    const std::string values = fmt::format("blk.{}.attn_compressor_kv.weight", i);
    attention.overlap = attention.pool != 0 && source.RowCount(values) == 2 * attention.d;
    // Of many keys, those of the smaller pools, an indexer selects.
    attention.indexer = IndexerSpec{};
    if (attention.overlap) attention.indexer = ReadIndexer(source, RopePairing::kPairs, n_rot);
    ropes.SetFor(attention);
    spec.layers[i].mixer = [attention](Parts& parts, ValueId x) {
      return BuildCompressedAttention(parts, x, attention);
    };
  }
}

Gating Limited(const std::vector<float>& limits, size_t layer) {
  Gating gating;
  // Files write 0 for none.
  if (layer < limits.size() && limits[layer] > 0)
    gating.gate_limit = gating.up_limit = limits[layer];
  return gating;
}

void SetExpertsByLayer(const ModelSource& source, DecoderSpec& spec) {
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSqrtSoftplus, true, 1e-20f});
  moe.shared = ReadSharedExperts(source, moe);
  const auto hashed = static_cast<size_t>(source.OptionalCount("hash_layer_count", 0).value_or(0));
  const auto layers = static_cast<int64_t>(spec.layers.size());
  const auto limits = source.OptionalFloatPerLayer("swiglu_clamp_exp", layers);
  auto shared_limits = source.OptionalFloatPerLayer("swiglu_clamp_shexp", layers);
  if (shared_limits.empty()) shared_limits = limits;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    moe.chosen_by_token = i < hashed;
    moe.ffn.gating = Limited(limits, i);
    if (moe.shared) moe.shared->gating = Limited(shared_limits, i);
    spec.layers[i].channel_mixer = [moe](Parts& parts, ValueId x) {
      return BuildMoe(parts, x, moe);
    };
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
