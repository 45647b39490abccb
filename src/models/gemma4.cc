// Gemma 4: windowed layers and layers that see all, each with its own heads and rope; experts beside the feed-forward (26B-A4B); inputs
// of each layer from a table of tokens, and layers that see the keys of earlier ones (E2B, E4B).
#include "models/gemma4.h"

#include <cmath>

#include "models/moe.h"

namespace lockstep {
namespace {

// Windowed layers have heads of another width.
void SetHeads(const ModelSource& source, DecoderSpec& spec) {
  const int64_t dk =
      source.OptionalCount("attention.key_length_swa").value_or(spec.layers[0].attention.dk);
  if (dk > 1024)
    source.Refuse("attention.key_length_swa", fmt::format("expected at most 1024, found {}", dk));
  const int64_t dv = source.OptionalCount("attention.value_length_swa").value_or(dk);
  // Values may be the keys.
  if (dv != dk) source.Refuse("attention.value_length_swa", fmt::format("expected {}, as of keys, found {}", dk, dv));
  const RopeOptions windowed = WindowedRope(source, source.OptionalCount("rope.dimension_count_swa").value_or(dk), 10000);
  if (windowed.n_rot > dk) source.Refuse("rope.dimension_count_swa", fmt::format("expected at most {}, found {}", dk, windowed.n_rot));
  SetWindowedRope(spec, windowed);
  ForEachLayer(spec, [&](LayerSpec& layer) {
    AttentionSpec& attention = layer.attention;
    if (attention.window != 0) attention.dk = attention.dv = dk;
    attention.scale = 1;
    attention.qk_norm = AttentionSpec::QkNorm::kHead;
    attention.norm_values = attention.keys_as_values = true;
    layer.feed_forward.gating.activation = Activation::kGeluTanh;
  });
}

ValueId ScaledOutput(Parts& parts, ValueId x) {
  if (!parts.Has("layer_output_scale")) return x;
  return parts.Scale("x_scaled", x,
                     parts.source().SmallTensor(parts.Tensor("layer_output_scale")).at(0));
}

// The last layers see the keys of the last layer of their kind that has some.
void ShareKeys(const ModelSource& source, DecoderSpec& spec) {
  const int64_t shared = source.OptionalCount("attention.shared_kv_layers", 0).value_or(0);
  const int64_t own = std::ssize(spec.layers) - shared;
  if (own < 1)
    source.Refuse("attention.shared_kv_layers",
                  fmt::format("expected less than {}, found {}", spec.layers.size(), shared));
  std::optional<int32_t> keys_of[2];
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    const bool window = attention.window != 0;
    if (static_cast<int64_t>(i) < own) {
      keys_of[window] = static_cast<int32_t>(i);
    } else if (keys_of[window]) {
      attention.kv_layer = keys_of[window];
    } else {
      source.Refuse("attention.shared_kv_layers", fmt::format("expected keys of its kind before layer {}, found none", i));
    }
  }
}

// The router sees the stream under a norm and scales of its own; each expert's weight has a scale.
ValueId BuildExperts(Parts& parts, ValueId x, const MoeSpec& moe) {
  ValueId routed = parts.PlainNorm("router_norm", x);
  routed = parts.Apply("router_scaled", MakeMulColumns(),
                       {routed, parts.build().Weight({parts.Tensor("ffn_gate_inp", "scale")}, {parts.Width()})});
  routed = parts.Scale("router_input", routed, 1 / std::sqrt(static_cast<float>(parts.Width().size)));
  return BuildMoe(parts, parts.Norm("moe_norm", x, "pre_ffw_norm_2"), routed, moe);
}

// Dense feed-forward and experts beside each other, each with norms of its own.
void SetExpertsBeside(const ModelSource& source, DecoderSpec& spec) {
  MoeDefaults defaults;
  defaults.normalize = true;
  MoeSpec moe = ReadMoeSpec(source, defaults);
  moe.ffn.gating.activation = Activation::kGeluTanh;
  for (LayerSpec& layer : spec.layers) {
    layer.norms_itself = true;
    layer.channel_mixer = [moe, dense = layer.feed_forward](Parts& parts, ValueId x) {
      ValueId first = BuildFeedForward(parts, parts.Norm("ff_norm", x, "ffn_norm"), dense);
      first = parts.Norm("post_ffw_norm_1", first, "post_ffw_norm_1");
      const ValueId second = parts.Norm("post_ffw_norm_2", BuildExperts(parts, x, moe), "post_ffw_norm_2");
      return parts.Apply("ff_and_moe", MakeAdd(), {first, second});
    };
  }
}

// What each layer is told of the tokens beside the stream (per-layer embeddings of Gemma 3n): p numbers from a table and from a
// projection of the embedded tokens.
class LayerInputs {
 public:
  LayerInputs(int64_t layers, int64_t width) : l_{'l', layers, 1}, p_{'p', width, width} {}

  ValueId Of(Parts& parts, ValueId embedded) const {
    const int64_t layer = parts.build().layer();
    const float width = static_cast<float>(p_.size);
    GraphBuilder& build = parts.build();
    const ValueId table = build.Weight({"per_layer_token_embd.weight"}, {parts.Vocab(), l_, p_});
    const ValueId known = parts.Apply("layer_token", MakeEmbedPart(std::sqrt(width), layer), {build.tokens(), table});
    const ValueId rows = build.Weight({"per_layer_model_proj.weight", layer * p_.size, l_.size * p_.size}, {p_, parts.Width()});
    ValueId seen = parts.Apply("layer_proj", MakeLinear(0), {embedded, rows});
    seen = parts.Scale("layer_scaled", seen, 1 / std::sqrt(static_cast<float>(parts.Width().size)));
    NormForm form;
    form.eps = parts.norm().eps;
    seen = parts.Apply("layer_norm", MakeRmsNorm(form), {seen, build.Weight({"per_layer_proj_norm.weight"}, {p_})});
    return parts.Scale("layer_input", parts.Apply("layer_sum", MakeAdd(), {seen, known}), std::sqrt(0.5f));
  }

  // x plus what the layer makes of its input.
  ValueId Added(Parts& parts, ValueId x, ValueId embedded) const {
    const ValueId gate = parts.Project("input_gate", x, "inp_gate", {p_});
    const ValueId gated =
        parts.Apply("input_gated", MakeActivateGated({Activation::kGeluTanh}), {gate, Of(parts, embedded)});
    const ValueId branch = parts.Norm("post_norm", parts.ProjectBack("input", gated, "proj", {p_}, 0), "post_norm");
    return parts.Apply("x3", MakeAdd(), {x, branch});
  }

 private:
  Axis l_, p_;
};

void SetLayerInputs(const ModelSource& source, DecoderSpec& spec) {
  const int64_t width = source.OptionalCount("embedding_length_per_layer_input", 0).value_or(0);
  if (width == 0) return;
  const auto embedded = std::make_shared<ValueId>(kNoValue);
  const LayerInputs inputs(std::ssize(spec.layers), width);
  spec.embedded = [embedded](Parts&, ValueId x) { return *embedded = x; };
  for (LayerSpec& layer : spec.layers) {
    layer.after = [=](Parts& parts, ValueId x) {
      return ScaledOutput(parts, inputs.Added(parts, x, *embedded));
    };
  }
}

}  // namespace

DecoderSpec ReadGemma4Layers(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  spec.post_norms = true;
  SetWindowPattern(source, 6, spec);
  SetHeads(source, spec);
  ForEachLayer(spec, [](LayerSpec& layer) { layer.after = ScaledOutput; });
  return spec;
}

Graph BuildGemma4(const ModelSource& source) {
  DecoderSpec spec = ReadGemma4Layers(source);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.width));
  ShareKeys(source, spec);
  if (source.OptionalCount("expert_count", 0).value_or(0) != 0) SetExpertsBeside(source, spec);
  SetLayerInputs(source, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
