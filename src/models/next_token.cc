#include "models/next_token.h"

#include "ops/concat.h"

namespace lockstep {
namespace {

// The tensor of the block's own, or the model's.
std::string OwnOr(Parts& parts, std::string_view own, const std::string& of_model) {
  return parts.Has(own) ? parts.Tensor(own) : of_model;
}

// What the block's layer sees: the next token and the model's last hidden row, each under a norm of its own, as one row.
ValueId Joined(Parts& parts, const DecoderSpec& spec) {
  GraphBuilder& build = parts.build();
  const int64_t k = spec.width;
  const ValueId hidden = build.Input("hidden", k);
  const ValueId table = build.Weight({OwnOr(parts, "nextn.embed_tokens", "token_embd.weight")},
                                     {parts.Vocab(), parts.Width()});
  const ValueId embedded = BuildEmbedding(parts, spec, table);
  const ValueId both = parts.Apply("joined", MakeConcat(k, k),
                                   {parts.Norm("embed_norm", embedded, "nextn.enorm"),
                                    parts.Norm("hidden_norm", hidden, "nextn.hnorm")});
  return parts.Apply("eh", MakeLinear(0),
                     {both, build.Weight({parts.Tensor("nextn.eh_proj")},
                                         {parts.Width(), Axis{'d', 2 * k, 2 * k}})});
}

}  // namespace

Graph BuildNextToken(const ModelSource& source, const DecoderSpec& spec) {
  const size_t block = spec.layers.size() - 1;
  if (!spec.layers[block].mixer) ExpectKeyHeads(source, spec, block);
  Parts parts(source, spec.width, spec.vocab, spec.norm, source.options().beside->states);
  parts.SetFirstPosition(1);
  for (const RopeSpec& rope : spec.ropes) parts.AddRope(rope);
  parts.build().SetLayer(static_cast<int32_t>(block));
  const ValueId x = BuildLayer(parts, spec, spec.layers[block], Joined(parts, spec));
  parts.build().MarkHidden(x);
  const ValueId normed = parts.Norm("final_norm", x, "nextn.shared_head_norm");
  const std::string head = OwnOr(parts, "nextn.shared_head_head", HeadTensor(source));
  parts.build().SetLayer(-1);
  return parts.build().Finish(normed, BuildLogits(parts, spec, normed, head));
}

}  // namespace lockstep
