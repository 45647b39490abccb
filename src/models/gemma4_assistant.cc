// The assistants of Gemma 4 (Google 2026): a few layers without keys of their own, which see those that the model cached last, go on from its last
// hidden row and the embedding of the next token, and hand on a row like it.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/drafts.h"
#include "models/gemma4.h"
#include "ops/concat.h"

namespace lockstep {
namespace {

// Whether two graphs' states hold heads alike.
bool Fits(const StateSpec& state, const AttentionSpec& attention) {
  return state.kv_heads == attention.kv_heads && state.dk == attention.dk &&
         state.dv == attention.dv;
}

// The layer of each kind, windowed or not, whose keys the model's last layers see.
std::optional<int32_t> LastKeys(const DraftTarget& target, const DecoderSpec& spec, bool windowed,
                                Parts& parts) {
  for (size_t layer = spec.layers.size(); layer-- > 0;) {
    if ((spec.layers[layer].attention.window != 0) != windowed) continue;
    const auto& states = target.graph.states;
    const auto state = std::ranges::find(states, fmt::format("blk.{}.kv", layer), &StateSpec::name);
    if (state == states.end()) continue;
    parts.build().SetLayer(static_cast<int32_t>(layer));
    parts.SetKv(parts.build().OtherState(static_cast<int32_t>(state - states.begin())));
    return static_cast<int32_t>(layer);
  }
  return std::nullopt;
}

void SeeKeysOf(const DraftTarget& target, const ModelSource& source, Parts& parts,
               DecoderSpec& spec) {
  const DecoderSpec of_model = ReadGemma4Layers(target.source);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    const bool windowed = attention.window != 0;
    attention.kv_layer = LastKeys(target, of_model, windowed, parts);
    if (!attention.kv_layer ||
        !Fits(parts.build().state(parts.kv(*attention.kv_layer)), attention)) {
      source.Refuse(
          "attention.head_count_kv",
          fmt::format(
              "expected the heads of {}'s last {} layer with keys, found {} of {} in layer {}",
              target.graph.name, windowed ? "windowed" : "unwindowed", attention.kv_heads,
              attention.dk, i));
    }
    // What is seen stands before the row; of a window one position more, as the release counts it from the last one cached.
    attention.seen_end = SeenEnd::kBefore;
    if (windowed) attention.window += 2;
  }
}

ValueId BuildInput(Parts& parts, int64_t width) {
  GraphBuilder& build = parts.build();
  const ValueId hidden = build.Input("hidden", width);
  const ValueId table = build.Weight({.tensor = "token_embd.weight", .of_model = true},
                                     {parts.Vocab(), Axis{'k', width, width}});
  const ValueId embedded = parts.Apply("embed", MakeEmbed(std::sqrt(static_cast<float>(width))),
                                       {build.tokens(), table});
  const ValueId both = parts.Apply("joined", MakeConcat(width, width), {embedded, hidden});
  return parts.Apply("pre", MakeLinear(0),
                     {both, build.Weight({"nextn.pre_projection.weight"},
                                         {parts.Width(), Axis{'d', 2 * width, 2 * width}})});
}

}  // namespace

DraftGraphs BuildGemma4Assistant(const ModelSource& source, const DraftTarget& target) {
  DecoderSpec spec = ReadGemma4Layers(source);
  const Shape& hidden = target.graph.value(target.graph.final_hidden).shape;
  const int64_t width = hidden[hidden.rank() - 1].size;
  Parts parts(source, spec.width, spec.vocab, spec.norm, target.graph.states);
  for (const RopeSpec& rope : spec.ropes) parts.AddRope(rope);
  SeeKeysOf(target, source, parts, spec);
  parts.build().SetLayer(-1);
  ValueId x = BuildInput(parts, width);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    parts.build().SetLayer(static_cast<int32_t>(i));
    x = BuildLayer(parts, spec, spec.layers[i], x);
    parts.build().MarkHidden(x);
  }
  parts.build().SetLayer(-1);
  x = parts.Norm("final_norm", x, "output_norm");
  const ValueId logits = BuildLogits(parts, spec, x, HeadTensor(source));
  const ValueId next =
      parts.Apply("post", MakeLinear(0),
                  {x, parts.build().Weight({"nextn.post_projection.weight"},
                                           {Axis{'n', width, width}, parts.Width()})});
  DraftGraphs draft;
  draft.graph = parts.build().Finish(next, logits);
  draft.seen = {target.graph.final_hidden};
  return draft;
}

}  // namespace lockstep
