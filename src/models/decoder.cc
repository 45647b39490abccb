#include "models/decoder.h"

#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

// States one decoder. Every member function states one piece and returns its value.
class DecoderBuilder {
 public:
  DecoderBuilder(const ModelSource& source, const DecoderSpec& spec)
      : source_(source), spec_(spec), build_(source.architecture()) {}

  Graph Build() {
    ValueId x = build_.Apply("embed", MakeEmbed(spec_.embedding_scale), {build_.tokens(), Embedding()});
    build_.MarkHidden(x);
    std::vector<ValueId> angles;
    for (size_t i = 0; i < spec_.ropes.size(); ++i) {
      angles.push_back(build_.Apply(fmt::format("angles.{}", i), MakeRopeAngles(Table(spec_.ropes[i])), {build_.tokens()}));
    }
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      build_.SetLayer(static_cast<int32_t>(i));
      const LayerSpec& layer = spec_.layers[i];
      x = AddBranch("x1", x, "post_attention_norm", Attention(Norm("norm", x, "attn_norm"), layer, angles[layer.rope]));
      x = AddBranch("x2", x, "post_ffw_norm", FeedForward(Norm("ff_norm", x, FeedForwardNorm()), layer));
      build_.MarkHidden(x);
    }
    build_.SetLayer(-1);
    x = build_.Apply("final_norm", MakeRmsNorm(spec_.norm_eps), {x, build_.Weight({"output_norm.weight"}, {Width()})});
    return build_.Finish(x, Logits(x));
  }

 private:
  // What the table refuses came from the file's keys.
  std::shared_ptr<const RopeTable> Table(const RopeSpec& rope) const {
    try {
      return std::make_shared<const RopeTable>(rope.options);
    } catch (const Error& error) {
      throw Refused("{}: {}", Printable(source_.file().name(), 4096), error.what());
    }
  }

  Axis Width() const { return {'k', spec_.width, spec_.width}; }
  Axis Vocab() const { return {'v', spec_.vocab, 1}; }

  std::string Tensor(std::string_view name, std::string_view kind = "weight") const {
    return fmt::format("blk.{}.{}.{}", build_.layer(), name, kind);
  }
  ValueId Embedding() { return build_.Weight({"token_embd.weight"}, {Vocab(), Width()}); }

  ValueId Norm(std::string_view name, ValueId x, std::string_view tensor) {
    return build_.Apply(name, MakeRmsNorm(spec_.norm_eps), {x, build_.Weight({Tensor(tensor)}, {Width()})});
  }

  // Some files name the norm before the feed-forward by its place after attention.
  std::string_view FeedForwardNorm() const {
    return source_.HasTensor(Tensor("ffn_norm")) || !source_.HasTensor(Tensor("post_attention_norm")) || spec_.post_norms
               ? "ffn_norm"
               : "post_attention_norm";
  }

  // x + branch, with the branch's own norm and scale.
  ValueId AddBranch(std::string_view name, ValueId x, std::string_view norm, ValueId branch) {
    if (spec_.post_norms) branch = Norm(norm, branch, norm);
    if (spec_.residual_scale != 1) branch = build_.Apply("scaled", MakeScale(spec_.residual_scale), {branch});
    return build_.Apply(name, MakeAdd(), {x, branch});
  }

  // A projection of x to `axes`, from `tensor` or from the rows of a fused tensor that start at fused_row, with its bias where the file has one.
  ValueId Project(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes,
                  std::string_view fused, int64_t fused_row, int64_t fused_rows) {
    WeightSource weight{Tensor(tensor)}, bias{Tensor(tensor, "bias")};
    if (!source_.HasTensor(weight.tensor) && source_.HasTensor(Tensor(fused))) {
      weight = {Tensor(fused), fused_row, fused_rows};
      bias = {Tensor(fused, "bias"), fused_row, fused_rows};
    }
    Shape matrix, vector;
    for (const Axis& axis : axes) matrix.Append(axis), vector.Append(axis);
    matrix.Append(Width());
    ValueId y = build_.Apply(name, MakeLinear(0), {x, build_.Weight(weight, matrix)});
    if (!source_.HasTensor(bias.tensor)) return y;
    return build_.Apply(fmt::format("{}_biased", name), MakeAddBias(), {y, build_.Weight(bias, vector)});
  }

  // A projection back to the model's width, over axes that a plan may cut at multiples of `unit`.
  ValueId ProjectBack(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes, int64_t unit) {
    Shape matrix{Width()};
    for (const Axis& axis : axes) matrix.Append(axis);
    ValueId y = build_.Apply(name, MakeLinear(unit), {x, build_.Weight({Tensor(tensor)}, matrix)});
    if (!source_.HasTensor(Tensor(tensor, "bias"))) return y;
    return build_.Apply(fmt::format("{}_biased", name), MakeAddBias(), {y, build_.Weight({Tensor(tensor, "bias")}, {Width()})});
  }

  ValueId Attention(ValueId x, const LayerSpec& layer, ValueId angles) {
    const int64_t groups = layer.kv_heads, per_group = layer.heads / layer.kv_heads;
    const Axis g{'g', groups, 1}, r{'r', per_group, 1}, dk{'d', spec_.dk, spec_.dk}, dv{'d', spec_.dv, spec_.dv};
    const int64_t q_rows = layer.heads * spec_.dk, k_rows = groups * spec_.dk, v_rows = groups * spec_.dv;
    const int64_t rows = q_rows + k_rows + v_rows;
    ValueId q = Project("q", x, "attn_q", {g, r, dk}, "attn_qkv", 0, rows);
    ValueId k = Project("k", x, "attn_k", {g, dk}, "attn_qkv", q_rows, rows);
    ValueId v = Project("v", x, "attn_v", {g, dv}, "attn_qkv", q_rows + k_rows, rows);
    if (spec_.qk_norm) {
      q = build_.Apply("q_norm", MakeRmsNorm(spec_.norm_eps), {q, build_.Weight({Tensor("attn_q_norm")}, {dk})});
      k = build_.Apply("k_norm", MakeRmsNorm(spec_.norm_eps), {k, build_.Weight({Tensor("attn_k_norm")}, {dk})});
    }
    const RopeSpec& rope = spec_.ropes[layer.rope];
    q = build_.Apply("q_rope", MakeRope(rope.pairing, rope.options.n_rot, spec_.dk), {q, angles});
    k = build_.Apply("k_rope", MakeRope(rope.pairing, rope.options.n_rot, spec_.dk), {k, angles});
    if (spec_.temperature_beta != 0) {
      q = build_.Apply("q_tempered", MakePositionScale(spec_.temperature_beta, spec_.temperature_length), {q});
    }
    const ValueId state = build_.State("kv", groups, spec_.dk, spec_.dv);
    build_.Apply("append", MakeKvAppend(), {k, v, state, state + 1});
    AttentionSettings settings;
    settings.scale = spec_.attention_scale != 0 ? spec_.attention_scale
                                                : static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.dk)));
    settings.soft_cap = spec_.attention_cap;
    settings.window = layer.window;
    ValueId heads = build_.Apply("heads", MakeAttention(settings), {q, state, state + 1});
    return ProjectBack("attn", heads, "attn_output", {g, r, dv}, spec_.dv);
  }

  ValueId FeedForward(ValueId x, const LayerSpec& layer) {
    const Axis f{'f', layer.ff_width, 1};
    ValueId gate, up;
    if (spec_.gate_in_up && !source_.HasTensor(Tensor("ffn_gate"))) {
      gate = Project("gate", x, "ffn_gate", {f}, "ffn_up", 0, 2 * layer.ff_width);
      up = Project("up", x, "ffn_up_part", {f}, "ffn_up", layer.ff_width, 2 * layer.ff_width);
    } else {
      gate = Project("gate", x, "ffn_gate", {f}, "ffn_gate", 0, 0);
      up = Project("up", x, "ffn_up", {f}, "ffn_up", 0, 0);
    }
    ValueId h = build_.Apply("gated", MakeActivateGated(spec_.gating), {gate, up});
    return ProjectBack("ff", h, "ffn_down", {f}, 1);
  }

  ValueId Logits(ValueId x) {
    ValueId head = source_.HasTensor("output.weight") ? build_.Weight({"output.weight"}, {Vocab(), Width()}) : Embedding();
    ValueId logits = build_.Apply("logits", MakeLinear(0), {x, head});
    if (source_.HasTensor("output.bias")) {
      logits = build_.Apply("logits_biased", MakeAddBias(), {logits, build_.Weight({"output.bias"}, {Vocab()})});
    }
    if (spec_.logit_scale != 1) logits = build_.Apply("logits_scaled", MakeScale(spec_.logit_scale), {logits});
    if (spec_.logit_cap != 0) logits = build_.Apply("logits_capped", MakeSoftCap(spec_.logit_cap), {logits});
    return logits;
  }

  const ModelSource& source_;
  const DecoderSpec& spec_;
  GraphBuilder build_;
};

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
void ExpectDense(const ModelSource& source) {
  if (const int64_t experts = source.OptionalCount("expert_count", 0).value_or(0); experts != 0) {
    source.Refuse("expert_count", fmt::format("expected 0, as this architecture is dense here, found {}", experts));
  }
}

}  // namespace

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

void SetWindowPattern(const ModelSource& source, int64_t period, DecoderSpec& spec) {
  const int64_t window = source.OptionalCount("attention.sliding_window", 0).value_or(0);
  if (window == 0) return;
  const auto listed = source.metadata().Find(source.Key("attention.sliding_window_pattern"));
  std::vector<bool> windowed(spec.layers.size());
  if (listed && std::holds_alternative<GgufArray>(listed->data)) {
    const auto flags = source.metadata().RequiredArray<bool>(source.Key("attention.sliding_window_pattern"),
                                                             GgufLength::Exactly(spec.layers.size()));
    windowed.assign(flags.begin(), flags.end());
  } else {
    if (listed) period = source.Count("attention.sliding_window_pattern");
    for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = period == 0 || (static_cast<int64_t>(i) + 1) % period != 0;
  }
  for (size_t i = 0; i < windowed.size(); ++i) spec.layers[i].window = windowed[i] ? window : 0;
}

DecoderSpec ReadDecoderSpec(const ModelSource& source, RopePairing pairing) {
  DecoderSpec spec;
  spec.width = source.Count("embedding_length");
  spec.vocab = source.RowCount("token_embd.weight");
  ExpectDense(source);
  const int64_t layers = ReadLayerCount(source);
  const auto heads = source.CountPerLayer("attention.head_count", layers);
  const auto kv_heads = source.OptionalCountPerLayer("attention.head_count_kv", layers, 1).value_or(heads);
  const auto ff_widths = source.CountPerLayer("feed_forward_length", layers);
  for (int64_t i = 0; i < layers; ++i) {
    if (heads[i] % kv_heads[i] != 0) {
      source.Refuse("attention.head_count", fmt::format("expected a multiple of the {} KV heads of layer {}, found {}",
                                                        kv_heads[i], i, heads[i]));
    }
    spec.layers.push_back({heads[i], kv_heads[i], ff_widths[i], 0, 0});
  }
  spec.dk = source.OptionalCount("attention.key_length").value_or(spec.width / heads[0]);
  spec.dv = source.OptionalCount("attention.value_length").value_or(spec.dk);
  const int64_t n_rot = source.OptionalCount("rope.dimension_count").value_or(spec.dk);
  if (spec.dk < 1 || spec.dk > 1024 || spec.dv > 1024 || n_rot > spec.dk) {
    source.Refuse("attention.key_length",
                  fmt::format("expected keys and values of 1 to 1024 a head and no more rotated, found {}, {} and {}", spec.dk,
                              spec.dv, n_rot));
  }
  spec.norm_eps = source.Float("attention.layer_norm_rms_epsilon");
  if (spec.norm_eps < 0) {
    source.Refuse("attention.layer_norm_rms_epsilon", fmt::format("expected at least 0, found {}", spec.norm_eps));
  }
  spec.ropes.push_back({ReadRopeOptions(source, n_rot, "rope.freq_base", 10000), pairing});
  spec.attention_scale = source.FloatOr("attention.scale", 0);
  spec.embedding_scale = source.FloatOr("embedding_scale", 1);
  spec.residual_scale = source.FloatOr("residual_scale", 1);
  spec.logit_scale = source.FloatOr("logit_scale", 1);
  spec.attention_cap = source.FloatOr("attn_logit_softcapping", 0);
  spec.logit_cap = source.FloatOr("final_logit_softcapping", 0);
  return spec;
}

Graph BuildDecoder(const ModelSource& source, const DecoderSpec& spec) { return DecoderBuilder(source, spec).Build(); }

}  // namespace lockstep
