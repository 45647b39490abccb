#include "models/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "models/next_token.h"

namespace lockstep {
namespace {

// Some files name the norm before the feed-forward by its place after attention.
std::string_view FeedForwardNorm(const Parts& parts, const DecoderSpec& spec) {
  return !parts.Has("ffn_norm") && parts.Has("post_attention_norm") && !spec.post_norms ? "post_attention_norm" : "ffn_norm";
}

// A branch with its own norm and scale, as it is added to the stream.
ValueId Finished(Parts& parts, const DecoderSpec& spec, std::string_view post_norm, ValueId branch) {
  if (spec.post_norms) branch = parts.Norm(post_norm, branch, post_norm, {parts.Width()}, spec.post_norm.value_or(spec.norm));
  return parts.Scale("scaled", branch, spec.residual_scale);
}

}  // namespace

ValueId BuildLayer(Parts& parts, const DecoderSpec& spec, const LayerSpec& layer, ValueId x) {
  const ValueId normed = spec.pre_norms ? parts.Norm("norm", x, "attn_norm") : x;
  ValueId branch = layer.mixer ? layer.mixer(parts, normed) : BuildAttention(parts, normed, layer.attention);
  const ValueId x1 = parts.Apply("x1", MakeAdd(), {x, Finished(parts, spec, "post_attention_norm", branch)});
  ValueId ff_normed = x1;
  if (spec.parallel) {
    ff_normed = normed;
  } else if (spec.pre_norms && !layer.norms_itself) {
    ff_normed = parts.Norm("ff_norm", x1, FeedForwardNorm(parts, spec));
  }
  branch = layer.channel_mixer ? layer.channel_mixer(parts, ff_normed) : BuildFeedForward(parts, ff_normed, layer.feed_forward);
  const ValueId x2 = parts.Apply("x2", MakeAdd(), {x1, Finished(parts, spec, "post_ffw_norm", branch)});
  return layer.after ? layer.after(parts, x2) : x2;
}

namespace {

// Far above any model; what is made of layers grows with the square of their number.
constexpr uint64_t kMostLayers = 1024;

// Layers must be backed by tensors before anything of their number is made.
int64_t ReadLayerCount(const ModelSource& source) {
  const auto layers = source.metadata().Required<int64_t>(source.Key("block_count"), {1, UINT32_MAX});
  const uint64_t tensors = source.file().tensor_count();
  if (static_cast<uint64_t>(layers) > tensors) {
    source.Refuse("block_count", fmt::format("expected at most {}, the number of tensors, found {}", tensors, layers));
  }
  if (static_cast<uint64_t>(layers) > kMostLayers) {
    source.Refuse("block_count", fmt::format("expected at most {}, found {}", kMostLayers, layers));
  }
  return layers;
}

// A file of a dense architecture may say that it has no experts.
void ExpectExpertsHeeded(const ModelSource& source, const DecoderSpec& spec) {
  const int64_t experts = source.OptionalCount("expert_count", 0).value_or(0);
  const bool heeded = std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.channel_mixer != nullptr; });
  if (experts != 0 && !heeded) {
    source.Refuse("expert_count", fmt::format("expected 0, as this architecture is dense here, found {}", experts));
  }
}

// A model of experts alone need not say how wide its dense layers are.
std::vector<int64_t> ReadFeedForwardWidths(const ModelSource& source, int64_t layers) {
  if (!source.OptionalCount("expert_feed_forward_length", 0)) return source.CountPerLayer("feed_forward_length", layers);
  return source.OptionalCountPerLayer("feed_forward_length", layers).value_or(std::vector<int64_t>(static_cast<size_t>(layers)));
}

// Both kinds of norm have a key of their own.
void ReadNorm(const ModelSource& source, NormSpec& norm) {
  const auto rms = source.OptionalFloat("attention.layer_norm_rms_epsilon");
  const auto layer = source.OptionalFloat("attention.layer_norm_epsilon");
  if (!rms && layer) norm.kind = NormSpec::Kind::kLayer;
  const std::string_view key = !rms && layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  norm.eps = source.Float(key);
  if (norm.eps < 0) source.Refuse(key, fmt::format("expected at least 0, found {}", norm.eps));
}

}  // namespace

void ExpectKeyHeads(const ModelSource& source, const DecoderSpec& spec, size_t layer) {
  if (spec.layers[layer].attention.kv_heads != 0) return;
  source.Refuse("attention.head_count_kv", fmt::format("expected at least 1 in layer {}, found 0", layer));
}

std::string HeadTensor(const ModelSource& source) {
  return source.HasTensor("output.weight") ? "output.weight" : "token_embd.weight";
}

ValueId BuildLogits(Parts& parts, const DecoderSpec& spec, ValueId x, const std::string& head) {
  const ValueId matrix = parts.build().Weight({head}, {parts.Vocab(), parts.Width()});
  ValueId logits = parts.Apply("logits", MakeLinear(0), {x, matrix});
  if (parts.Has("output", "bias")) {
    logits = parts.Apply("logits_biased", MakeAddBias(), {logits, parts.build().Weight({"output.bias"}, {parts.Vocab()})});
  }
  logits = parts.Scale("logits_scaled", logits, spec.logit_scale);
  return spec.logit_cap == 0 ? logits : parts.Apply("logits_capped", MakeSoftCap(spec.logit_cap), {logits});
}

RopeOptions ReadRopeOptions(const ModelSource& source, int64_t n_rot, std::string_view base_key, double base_default) {
  RopeOptions rope;
  rope.n_rot = n_rot;
  rope.base = source.FloatOr(base_key, static_cast<float>(base_default));
  const int64_t context = source.Count("context_length");
  rope.context = source.options().context != 0 ? source.options().context : context;
  rope.original_context = source.OptionalCount("rope.scaling.original_context_length").value_or(context);
  const std::string type = source.StringOr("rope.scaling.type", "none");
  // Older files have only a linear factor.
  const float linear = source.FloatOr("rope.scale_linear", 1);
  rope.factor = source.FloatOr("rope.scaling.factor", linear);
  if (auto factor = source.OptionalFloat("rope.scaling.attn_factor")) rope.attention_factor = *factor;
  if (type == "linear" || (type == "none" && linear != 1)) {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = source.FloatOr("rope.scaling.yarn_beta_fast", 32);
    rope.beta_slow = source.FloatOr("rope.scaling.yarn_beta_slow", 1);
    rope.truncate = source.BoolOr("rope.scaling.yarn_truncate", true);
    if (auto factor = source.OptionalFloat("rope.scaling.yarn_attn_factor")) rope.attention_factor = *factor;
    // Files state the mscale of all dimensions only, the other one being 1.
    if (auto mscale = source.OptionalFloat("rope.scaling.yarn_log_multiplier")) {
      rope.mscale = 1;
      rope.mscale_all_dim = *mscale;
    }
  } else if (type == "longrope" || source.HasTensor("rope_factors_long.weight")) {
    rope.scaling = RopeScaling::kLongRope;
    rope.factor = static_cast<double>(context) / static_cast<double>(rope.original_context);
    rope.long_factors = source.SmallTensor("rope_factors_long.weight");
    rope.short_factors = source.SmallTensor("rope_factors_short.weight");
  } else if (type != "none") {
    source.Refuse("rope.scaling.type", fmt::format("expected none, linear, yarn or longrope, found \"{}\"", Printable(type)));
  }
  if (rope.scaling == RopeScaling::kNone) rope.factor = 1;
  if (source.HasTensor("rope_freqs.weight")) rope.freq_factors = source.SmallTensor("rope_freqs.weight");
  return rope;
}

RopeOptions WindowedRope(const ModelSource& source, int64_t n_rot, double base_default) {
  RopeOptions rope;
  rope.n_rot = n_rot;
  rope.base = source.FloatOr("rope.freq_base_swa", static_cast<float>(base_default));
  return rope;
}

void SetWindowedRope(DecoderSpec& spec, const RopeOptions& rope) {
  spec.ropes.push_back({rope, spec.ropes[0].pairing});
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.window != 0) layer.attention.rope = spec.ropes.size() - 1;
  }
}

void SetWindowPattern(const ModelSource& source, int64_t period, DecoderSpec& spec, Unwindowed unwindowed) {
  const int64_t window = source.OptionalCount("attention.sliding_window", 0).value_or(0);
  if (window == 0) return;
  const std::string key = source.Key("attention.sliding_window_pattern");
  const auto listed = source.metadata().Find(key);
  const auto* array = listed ? std::get_if<GgufArray>(&listed->data) : nullptr;
  std::vector<bool> windowed(spec.layers.size());
  if (array != nullptr) {
    // Next-token blocks are listed too. Files list truth values or numbers.
    const GgufLength length = GgufLength::Exactly(static_cast<uint64_t>(source.Count("block_count")));
    if (array->element == GgufValueType::kBool) {
      const auto flags = source.metadata().RequiredArray<bool>(key, length);
      std::copy_n(flags.begin(), windowed.size(), windowed.begin());
    } else {
      const auto flags = source.metadata().RequiredArray<int64_t>(key, length);
      std::transform(flags.begin(), flags.begin() + std::ssize(windowed), windowed.begin(), [](int64_t flag) { return flag != 0; });
    }
  } else {
    if (listed) period = source.Count("attention.sliding_window_pattern");
    const int64_t sees_all = unwindowed == Unwindowed::kFirst ? 0 : period - 1;
    for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = period == 0 || static_cast<int64_t>(i) % period != sees_all;
  }
  for (size_t i = 0; i < windowed.size(); ++i) spec.layers[i].attention.window = windowed[i] ? window : 0;
}

DecoderSpec ReadDecoderSpec(const ModelSource& source, RopePairing pairing, std::optional<int64_t> vocab) {
  DecoderSpec spec;
  spec.width = source.Count("embedding_length");
  spec.vocab = vocab ? *vocab : source.RowCount("token_embd.weight");
  // The first next-token block stands behind the layers.
  const int64_t blocks = ReadLayerCount(source), layers = source.layers() + (source.options().beside != nullptr);
  const auto heads = source.CountPerLayer("attention.head_count", blocks);
  const auto kv_heads = source.OptionalCountPerLayer("attention.head_count_kv", blocks).value_or(heads);
  const auto ff_widths = ReadFeedForwardWidths(source, blocks);
  const int64_t dk = source.OptionalCount("attention.key_length").value_or(spec.width / heads[0]);
  const int64_t dv = source.OptionalCount("attention.value_length").value_or(dk);
  const int64_t n_rot = source.OptionalCount("rope.dimension_count", 0).value_or(dk);
  if (dk < 1 || dk > 1024 || dv > 1024 || n_rot > dk) {
    source.Refuse("attention.key_length",
                  fmt::format("expected keys and values of 1 to 1024 a head and no more rotated, found {}, {} and {}", dk, dv, n_rot));
  }
  AttentionSpec attention;
  attention.dk = dk, attention.dv = dv;
  attention.scale = source.FloatOr("attention.scale", 0);
  attention.soft_cap = source.FloatOr("attn_logit_softcapping", 0);
  for (int64_t i = 0; i < layers; ++i) {
    if (kv_heads[i] != 0 && heads[i] % kv_heads[i] != 0) {
      source.Refuse("attention.head_count", fmt::format("expected a multiple of the {} KV heads of layer {}, found {}",
                                                        kv_heads[i], i, heads[i]));
    }
    attention.heads = heads[i], attention.kv_heads = kv_heads[i];
    FeedForwardSpec feed_forward;
    feed_forward.width = ff_widths[i];
    spec.layers.push_back({attention, feed_forward, {}, {}, {}});
  }
  ReadNorm(source, spec.norm);
  spec.ropes.push_back({ReadRopeOptions(source, n_rot, "rope.freq_base", 10000), pairing});
  spec.embedding_scale = source.FloatOr("embedding_scale", 1);
  spec.residual_scale = source.FloatOr("residual_scale", 1);
  spec.logit_scale = source.FloatOr("logit_scale", 1);
  spec.logit_cap = source.FloatOr("final_logit_softcapping", 0);
  return spec;
}

ValueId BuildEmbedding(Parts& parts, const DecoderSpec& spec, ValueId table) {
  const ValueId x = parts.Apply("embed", MakeEmbed(spec.embedding_scale), {parts.build().tokens(), table});
  return spec.embedded ? spec.embedded(parts, x) : x;
}

Graph BuildDecoder(const ModelSource& source, const DecoderSpec& spec) {
  if (source.options().beside != nullptr) return BuildNextToken(source, spec);
  ExpectExpertsHeeded(source, spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!spec.layers[i].mixer) ExpectKeyHeads(source, spec, i);
  }
  Parts parts(source, spec.width, spec.vocab, spec.norm);
  const ValueId embedding = parts.build().Weight({"token_embd.weight"}, {parts.Vocab(), parts.Width()});
  ValueId x = BuildEmbedding(parts, spec, embedding);
  parts.build().MarkHidden(x);
  for (const RopeSpec& rope : spec.ropes) parts.AddRope(rope);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    parts.build().SetLayer(static_cast<int32_t>(i));
    x = BuildLayer(parts, spec, spec.layers[i], x);
    parts.build().MarkHidden(x);
  }
  parts.build().SetLayer(-1);
  x = parts.Norm("final_norm", x, spec.final_norm);
  return parts.build().Finish(x, BuildLogits(parts, spec, x, HeadTensor(source)));
}

}  // namespace lockstep
