// DFlash (z-lab 2026): a small decoder that denoises a block of mask tokens after the model's next token. Its layers see keys and values made of
// the model's residual stream after some layers, fused to one row a position, and those of the block itself.
#include "base/error.h"
#include "models/decoder.h"
#include "models/drafts.h"

namespace lockstep {
namespace {

constexpr std::string_view kTargetLayers = "target_layers";

// Which values of the model's graph are fused: 1 is the stream after its first layer.
std::vector<ValueId> ReadSeen(const ModelSource& source, const DraftTarget& target) {
  const auto layers =
      source.metadata().RequiredArray<int64_t>(source.Key(kTargetLayers), GgufLength{1, 64});
  std::vector<ValueId> seen;
  for (int64_t layer : layers) {
    if (layer < 1 || layer >= std::ssize(target.graph.hidden)) {
      source.Refuse(kTargetLayers,
                    fmt::format("expected layers 1 to {} of {}, found {}",
                                target.graph.hidden.size() - 1, target.graph.name, layer));
    }
    seen.push_back(target.graph.hidden[static_cast<size_t>(layer)]);
  }
  return seen;
}

int64_t WidthOf(const Graph& graph, ValueId value) {
  const Shape& shape = graph.value(value).shape;
  return static_cast<int64_t>(shape.Count().value_or(0)) / shape[0].size;
}

// Keys and values of fused rows, as the layers of the block see them.
Graph BuildContext(const ModelSource& source, const DecoderSpec& spec, const DraftTarget& target,
                   const std::vector<ValueId>& seen) {
  Parts parts(source, spec.width, spec.vocab, spec.norm, target.graph.states);
  GraphBuilder& build = parts.build();
  int64_t width = 0;
  for (ValueId value : seen) width += WidthOf(target.graph, value);
  const ValueId rows = build.Input("hidden", width);
  const Shape fc{parts.Width(), Axis{'d', width, width}};
  ValueId x = parts.Apply("fused_raw", MakeLinear(0), {rows, build.Weight({"fc.weight"}, fc)});
  x = parts.Norm("fused", x, "enc.output_norm");
  // Releases may rotate them as the model rotates its own.
  RopeSpec rope = spec.ropes[0];
  rope.options.base =
      source.FloatOr("context_rope_freq_base", static_cast<float>(rope.options.base));
  parts.AddRope(rope);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    build.SetLayer(static_cast<int32_t>(i));
    AppendKeys(parts, x, spec.layers[i].attention);
  }
  return build.Finish(x, kNoValue);
}

Graph BuildBlock(const ModelSource& source, const DecoderSpec& spec, const DraftTarget& target,
                 const Graph& context) {
  Parts parts(source, spec.width, spec.vocab, spec.norm, context.states);
  GraphBuilder& build = parts.build();
  const Shape by_token{parts.Vocab(), parts.Width()};
  const auto of_model = [&](std::string tensor) {
    return build.Weight({.tensor = std::move(tensor), .of_model = true}, by_token);
  };
  ValueId x = parts.Apply("embed", MakeEmbed(1), {build.tokens(), of_model("token_embd.weight")});
  parts.AddRope(spec.ropes[0]);
  auto slot = static_cast<int32_t>(target.graph.states.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    build.SetLayer(static_cast<int32_t>(i));
    LayerSpec layer = spec.layers[i];
    layer.attention.state_slot = slot++;
    x = BuildLayer(parts, spec, layer, x);
    build.MarkHidden(x);
  }
  build.SetLayer(-1);
  x = parts.Norm("final_norm", x, "output_norm");
  return build.Finish(
      x, parts.Apply("logits", MakeLinear(0), {x, of_model(HeadTensor(target.source))}));
}

DecoderSpec ReadSpec(const ModelSource& source, const DraftTarget& target) {
  DecoderSpec spec =
      ReadDecoderSpec(source, RopePairing::kHalves, target.source.RowCount("token_embd.weight"));
  SetWindowPattern(source, 0, spec);
  const float value_scale = source.FloatOr("attention.value_scale", 1);
  // A key of our own: windowed layers see of the block what stands before, too.
  const bool causal = source.BoolOr("attention.causal_windows", false);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    ExpectKeyHeads(source, spec, i);
    AttentionSpec& attention = spec.layers[i].attention;
    attention.state = "draft_kv";
    attention.qk_norm = AttentionSpec::QkNorm::kHead;
    attention.value_scale = value_scale;
    attention.sinks = source.HasTensor(fmt::format("blk.{}.attn_sinks.weight", i));
    attention.seen_end = causal && attention.window != 0 ? SeenEnd::kOwn : SeenEnd::kBatch;
  }
  return spec;
}

}  // namespace

DraftGraphs BuildDflash(const ModelSource& source, const DraftTarget& target) {
  DraftGraphs draft;
  draft.block = source.Count("block_size", 2);
  const DecoderSpec spec = ReadSpec(source, target);
  draft.mask_token = source.metadata().Required<int32_t>(
      "tokenizer.ggml.mask_token_id", {0, static_cast<uint64_t>(spec.vocab - 1)});
  const int64_t window = source.OptionalCount("attention.sliding_window", 0).value_or(0);
  if (draft.block > 1024 || (window != 0 && draft.block > window)) {
    source.Refuse("block_size", fmt::format("expected at most {}, found {}",
                                            window == 0 ? 1024 : window, draft.block));
  }
  draft.seen = ReadSeen(source, target);
  draft.context = BuildContext(source, spec, target, draft.seen);
  draft.graph = BuildBlock(source, spec, target, *draft.context);
  return draft;
}

}  // namespace lockstep
