// Qwen4 (Qwen team 2026): Qwen3.5's gated delta networks and gated attention, the latter over pools of positions that an indexer selects, around
// gated residual streams; in some layers embeddings of n-grams join the streams.
#include <cmath>

#include "models/delta_net.h"
#include "models/moe.h"
#include "models/ngrams.h"
#include "models/pooled_keys.h"
#include "models/short_conv.h"
#include "ops/dot_gate.h"
#include "ops/gathered_attention.h"
#include "ops/hyper_connections.h"
#include "ops/repeat.h"
#include "ops/select_keys.h"

namespace lockstep {
namespace {

constexpr int64_t kMostStreams = 64;

struct IndexSpec {
  int64_t heads = 0, d = 0;
  int64_t budget = 0, pool = 0;  // positions, selected together by `pool`
};

struct Qwen4Spec {
  DecoderSpec decoder;
  DeltaNetSpec delta;
  IndexSpec index;
  int64_t streams = 0, low_rank = 0;
  std::vector<bool> recurrent;
  std::vector<std::optional<NgramSpec>> ngrams;  // by layer
};

// States a graph whose residual is several streams.
class Qwen4Builder {
 public:
  Qwen4Builder(const ModelSource& source, const Qwen4Spec& spec)
      : spec_(spec),
        parts_(source, spec.decoder.width, spec.decoder.vocab, spec.decoder.norm),
        streams_{'g', spec.streams, 1} {}

  Graph Build() {
    const ValueId embedding =
        parts_.build().Weight({"token_embd.weight"}, {parts_.Vocab(), parts_.Width()});
    ValueId x = parts_.Apply("embed", MakeEmbed(1), {parts_.build().tokens(), embedding});
    x = Repeated("streams", x);
    parts_.build().MarkHidden(x);
    for (const RopeSpec& rope : spec_.decoder.ropes) parts_.AddRope(rope);
    for (size_t i = 0; i < spec_.decoder.layers.size(); ++i) {
      parts_.build().SetLayer(static_cast<int32_t>(i));
      x = Layer(i, x);
      parts_.build().MarkHidden(x);
    }
    parts_.build().SetLayer(-1);
    x = Mixed("output_hc", Normed("output_hc", x));
    return parts_.build().Finish(x, BuildLogits(parts_, spec_.decoder, x, HeadTensor(parts_.source())));
  }

 private:
  ValueId Repeated(std::string_view name, ValueId x) {
    return parts_.Apply(name, MakeRepeat(spec_.streams, parts_.Width().size), {x});
  }
  ValueId StreamNorm(std::string_view name, ValueId x, std::string_view tensor) {
    const ValueId weight =
        parts_.build().Weight({parts_.Tensor(tensor)}, {streams_, parts_.Width()});
    return parts_.Apply(name, MakeGroupedRmsNorm(parts_.norm().eps, parts_.Width().size),
                        {x, weight});
  }
  ValueId Linear(std::string_view name, ValueId x, std::string_view tensor, const Shape& matrix) {
    return parts_.Apply(name, MakeLinear(0),
                        {x, parts_.build().Weight({parts_.Tensor(tensor)}, matrix)});
  }
  float Share() const { return 1 / static_cast<float>(spec_.streams); }

  ValueId Normed(std::string_view hc, ValueId streams) {
    return StreamNorm(fmt::format("{}_normed", hc), streams, fmt::format("{}_norm", hc));
  }
  // The mean of the streams, each number times a gate of low rank.
  ValueId Mixed(std::string_view hc, ValueId normed) {
    const auto named = [&](std::string_view part) { return fmt::format("{}_{}", hc, part); };
    const Axis low{'n', spec_.low_rank, 1};
    ValueId gate = Linear(named("low"), normed, named("down"), {low, streams_, parts_.Width()});
    gate = parts_.Scale(named("low_scaled"), gate, Share());
    gate = parts_.Apply(named("low_active"), MakeActivate(Activation::kSilu), {gate});
    gate = Linear(named("gate_raw"), gate, named("up"), {streams_, parts_.Width(), low});
    gate = parts_.Apply(named("gate"), MakeActivate(Activation::kSigmoid), {gate});
    const ValueId gated = parts_.Apply(named("gated"), MakeMul(), {gate, normed});
    return parts_.Apply(named("in"), MakeStreamMean(spec_.streams), {gated});
  }
  // Streams and what a branch makes of their mix, times a weight for each.
  ValueId Around(std::string_view hc, ValueId streams,
                 const std::function<ValueId(ValueId)>& branch) {
    const auto named = [&](std::string_view part) { return fmt::format("{}_{}", hc, part); };
    const ValueId normed = Normed(hc, streams);
    ValueId weights =
        Linear(named("inject_raw"), normed, named("inject"), {streams_, streams_, parts_.Width()});
    weights = parts_.Scale(named("inject_scaled"), weights, Share());
    weights = parts_.Apply(named("inject_gate"), MakeActivate(Activation::kSigmoid), {weights});
    weights = parts_.Scale(named("inject"), weights, 2);
    const ValueId y = branch(Mixed(hc, normed));
    const ValueId injected =
        parts_.Apply(named("injected"), MakeMulEach(), {Repeated(named("repeated"), y), weights});
    return parts_.Apply(named("out"), MakeAdd(), {streams, injected});
  }

  ValueId Layer(size_t i, ValueId x) {
    const LayerSpec& layer = spec_.decoder.layers[i];
    if (spec_.ngrams[i]) x = WithNgrams(x, *spec_.ngrams[i]);
    x = Around("hc_attn", x, [&](ValueId y) {
      return spec_.recurrent[i] ? BuildDeltaNet(parts_, y, spec_.delta)
                                : BuildAttention(parts_, y, Selected(layer));
    });
    return Around("hc_ffn", x, [&](ValueId y) {
      return layer.channel_mixer ? layer.channel_mixer(parts_, y)
                                 : BuildFeedForward(parts_, y, layer.feed_forward);
    });
  }

  AttentionSpec Selected(const LayerSpec& layer) {
    AttentionSpec attention = layer.attention;
    attention.select = [this](Parts&, ValueId x) { return Select(x); };
    return attention;
  }
  // Whole pools of the largest index scores, their keys being normed and rotated means.
  Selection Select(ValueId x) {
    const IndexSpec& index = spec_.index;
    const Axis heads{'r', index.heads, index.heads}, one{'g', 1, 1}, d{'d', index.d, index.d};
    const auto rotated = [&](std::string_view name, ValueId value, size_t rope) {
      const RopeSpec& spec = parts_.rope(rope);
      return parts_.Apply(name, MakeRope(spec.pairing, spec.options.n_rot, index.d),
                          {value, parts_.angles(rope)});
    };
    ValueId q = parts_.Project("index_q_raw", x, "indexer.q_proj", {heads, d});
    q = rotated("index_q", parts_.Norm("index_q_norm", q, "indexer.q_norm", {d}), 0);
    q = parts_.RotatedKeys("index_q_rotated", q, index.d);
    const ValueId k = parts_.Project("index_k_raw", x, "indexer.k_proj", {one, d});
    const auto finish = [&](ValueId pooled) {
      return rotated("index_k", parts_.Norm("index_k_norm", pooled, "indexer.k_norm", {d}), 1);
    };
    const ValueId state = BuildPooledKeys(parts_, "index", k, kNoValue, "",
                                          {{.pool = index.pool, .d = index.d}, false, finish});
    SelectKeysSettings settings;
    settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(index.d)));
    settings.top_k = index.budget / index.pool;
    settings.pool = index.pool;
    settings.weighted = false;
    return {parts_.Apply("selected", MakeSelectKeys(settings), {q, state}), settings.width()};
  }

  // The streams and a value of the n-grams that end here, by how alike its keys and they are, and that value's past.
  ValueId WithNgrams(ValueId streams, const NgramSpec& spec) {
    const ValueId ngrams = BuildNgrams(parts_, spec);
    const Axis d = spec.d(), heads = spec.heads();
    ValueId keys = Linear("ple_key_raw", ngrams, "ple_key", {streams_, parts_.Width(), heads, d});
    keys = StreamNorm("ple_key", keys, "ple_norm_key");
    const ValueId queries = StreamNorm("ple_query", streams, "ple_norm_query");
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(parts_.Width().size)));
    const ValueId gates = parts_.Apply("ple_gate", MakeDotGate(scale), {keys, queries});
    const ValueId value = Linear("ple_value", ngrams, "ple_value", {parts_.Width(), heads, d});
    const ValueId gated =
        parts_.Apply("ple_gated", MakeMulEach(), {Repeated("ple_values", value), gates});
    const ConvSpec conv{"ple_conv1d", 0, 0, spec.taps, spec.orders + 1, Activation::kSilu};
    const ValueId past =
        BuildConv(parts_, "ple_conv", StreamNorm("ple_conv_in", gated, "ple_norm_conv"), conv);
    const ValueId sum = parts_.Apply("ple", MakeAdd(), {gated, past});
    return parts_.Apply("ple_out", MakeAdd(), {streams, sum});
  }

  const Qwen4Spec& spec_;
  Parts parts_;
  Axis streams_;
};

IndexSpec ReadIndex(const ModelSource& source, size_t blocks) {
  IndexSpec index;
  index.heads = source.Count("attention.indexer.head_count");
  index.d = source.Count("attention.indexer.key_length");
  index.budget = source.Count("attention.indexer.top_k");
  constexpr std::string_view kPools = "attention.compress_ratios";
  for (int64_t pool :
       source.metadata().RequiredArray<int64_t>(source.Key(kPools), GgufLength::Exactly(blocks))) {
    if (pool == 0) continue;
    if (index.pool != 0 && pool != index.pool)
      source.Refuse(kPools, "expected one number for all layers that have it");
    index.pool = pool;
  }
  if (index.pool < 1 || index.pool > kPageTokens || kPageTokens % index.pool != 0) {
    source.Refuse(kPools,
                  fmt::format("expected a divisor of {}, found {}", kPageTokens, index.pool));
  }
  if (index.d > 1024)
    source.Refuse("attention.indexer.key_length",
                  fmt::format("expected at most 1024, found {}", index.d));
  const int64_t n_rot = source.OptionalCount("rope.dimension_count").value_or(index.d);
  if (n_rot > index.d) {
    source.Refuse(
        "rope.dimension_count",
        fmt::format("expected at most {}, the width of an index key, found {}", index.d, n_rot));
  }
  if (index.budget > 65536 || index.budget % index.pool != 0) {
    source.Refuse(
        "attention.indexer.top_k",
        fmt::format("expected a multiple of {} up to 65536, found {}", index.pool, index.budget));
  }
  return index;
}

Qwen4Spec ReadQwen4Spec(const ModelSource& source) {
  Qwen4Spec spec;
  spec.decoder = ReadDecoderSpec(source, RopePairing::kHalves);
  const size_t layers = spec.decoder.layers.size();
  spec.delta = ReadDeltaNetSpec(source);
  spec.delta.tiled = true;
  spec.delta.output_gate = Activation::kSigmoid;
  spec.recurrent = ReadRecurrentLayers(source, layers);
  for (size_t i = 0; i < layers; ++i) {
    if (!spec.recurrent[i]) ExpectKeyHeads(source, spec.decoder, i);
  }
  spec.index = ReadIndex(source, static_cast<size_t>(source.Count("block_count")));
  spec.streams = source.Count("hyper_connection.count");
  spec.low_rank = source.Count("hyper_connection.low_rank");
  if (spec.streams > kMostStreams) {
    source.Refuse("hyper_connection.count",
                  fmt::format("expected at most {}, found {}", kMostStreams, spec.streams));
  }
  spec.ngrams = ReadNgrams(source, layers);
  RopeSpec pooled = spec.decoder.ropes[0];
  pooled.places.pool = spec.index.pool;
  spec.decoder.ropes.push_back(pooled);
  ForEachLayer(spec.decoder, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.gate_in_query = true;
  });
  MoeSpec moe = ReadMoeSpec(source, {.normalize = true});
  moe.shared = ReadSharedExperts(source, moe);
  moe.shared_gate = true;
  SetExperts(source, moe, spec.decoder);
  return spec;
}

}  // namespace

Graph BuildQwen4Exp(const ModelSource& source) {
  const Qwen4Spec spec = ReadQwen4Spec(source);
  return Qwen4Builder(source, spec).Build();
}

}  // namespace lockstep
