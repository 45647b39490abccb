#include "models/hyper_decoder.h"

#include "ops/repeat.h"

namespace lockstep {
namespace {

// Streams of one model.
class HyperStreams {
 public:
  HyperStreams(Parts& parts, const HyperSpec& spec)
      : parts_(parts), hyper_(spec.connections), weighted_head_(spec.weighted_head) {}

  ValueId Start(ValueId x) {
    return parts_.Apply("streams", MakeRepeat(hyper_.streams, parts_.Width().size), {x});
  }

  // A branch from one stream to one, mixed into all. `tensors`: "hc_attn".
  ValueId Around(std::string_view tensors, ValueId streams,
                 const std::function<ValueId(ValueId)>& branch) {
    const ValueId weights = Weights(tensors, streams, hyper_);
    const ValueId y = branch(
        parts_.Apply(fmt::format("{}_in", tensors), MakeHyperCollapse(hyper_), {streams, weights}));
    return parts_.Apply(fmt::format("{}_out", tensors), MakeHyperExpand(hyper_),
                        {streams, weights, y});
  }

  ValueId End(ValueId streams) {
    if (!weighted_head_) return parts_.Apply("stream", MakeStreamMean(hyper_.streams), {streams});
    HyperConnections head = hyper_;
    head.head = true;
    return parts_.Apply("stream", MakeHyperCollapse(head),
                        {streams, Weights("output_hc", streams, head)});
  }

 private:
  ValueId Weights(std::string_view tensors, ValueId streams, const HyperConnections& hyper) {
    const Axis n{'g', hyper.streams, 1}, m{'n', hyper.weights(), hyper.weights()},
        scales{'n', hyper.head ? 1 : 3, 1};
    const auto weight = [&](std::string_view part, const Shape& shape) {
      return parts_.build().Weight({parts_.Tensor(fmt::format("{}_{}", tensors, part))}, shape);
    };
    NormForm form;
    form.eps = parts_.norm().eps;
    form.over = NormOver::kRow;
    form.weighted = false;
    const ValueId normed =
        parts_.Apply(fmt::format("{}_norm", tensors), MakeRmsNorm(form), {streams});
    const ValueId mixes = parts_.Apply(fmt::format("{}_mixes", tensors), MakeLinear(0),
                                       {normed, weight("fn", {m, n, parts_.Width()})});
    return parts_.Apply(fmt::format("{}_weights", tensors), MakeHyperWeights(hyper),
                        {mixes, weight("base", {m}), weight("scale", {scales})});
  }

  Parts& parts_;
  HyperConnections hyper_;
  bool weighted_head_;
};

}  // namespace

HyperSpec ReadHyperConnections(const ModelSource& source) {
  HyperSpec spec;
  spec.connections.streams = source.Count("hyper_connection.count");
  spec.connections.iterations = source.Count("hyper_connection.sinkhorn_iterations");
  spec.connections.eps = source.Float("hyper_connection.epsilon");
  if (spec.connections.streams > 64 || spec.connections.iterations > 1000) {
    source.Refuse("hyper_connection.count",
                  fmt::format("expected at most 64 streams and 1000 iterations, found {} and {}",
                              spec.connections.streams, spec.connections.iterations));
  }
  if (spec.connections.eps < 0) {
    source.Refuse("hyper_connection.epsilon",
                  fmt::format("expected at least 0, found {}", spec.connections.eps));
  }
  return spec;
}

Graph BuildHyperDecoder(const ModelSource& source, const DecoderSpec& spec,
                        const HyperSpec& hyper) {
  Parts parts(source, spec.width, spec.vocab, spec.norm);
  HyperStreams streams(parts, hyper);
  const ValueId embedding =
      parts.build().Weight({"token_embd.weight"}, {parts.Vocab(), parts.Width()});
  ValueId x = streams.Start(
      parts.Apply("embed", MakeEmbed(spec.embedding_scale), {parts.build().tokens(), embedding}));
  parts.build().MarkHidden(x);
  for (const RopeSpec& rope : spec.ropes) parts.AddRope(rope);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    parts.build().SetLayer(static_cast<int32_t>(i));
    const LayerSpec& layer = spec.layers[i];
    x = streams.Around("hc_attn", x, [&](ValueId y) {
      return layer.mixer(parts, parts.Norm("norm", y, "attn_norm"));
    });
    x = streams.Around("hc_ffn", x, [&](ValueId y) {
      const ValueId normed = parts.Norm("ff_norm", y, "ffn_norm");
      return layer.channel_mixer ? layer.channel_mixer(parts, normed)
                                 : BuildFeedForward(parts, normed, layer.feed_forward);
    });
    parts.build().MarkHidden(x);
  }
  parts.build().SetLayer(-1);
  x = parts.Norm("final_norm", streams.End(x), "output_norm");
  return parts.build().Finish(x, BuildLogits(parts, spec, x, HeadTensor(source)));
}

}  // namespace lockstep
