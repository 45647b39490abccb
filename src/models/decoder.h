// The decoder that most architectures are: an architecture's file fills in a DecoderSpec, this file states the graph.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/attention.h"
#include "models/feed_forward.h"

namespace lockstep {

// States a branch of a layer: from the normed residual stream [t, k] to what is added to it.
using Branch = std::function<ValueId(Parts& parts, ValueId x)>;

// One layer of a decoder.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  // Instead of attention (latent, recurrent ...) and of the dense feed-forward (experts ...), where set.
  Branch mixer;
  Branch channel_mixer;
  bool norms_itself = false;  // channel_mixer sees the stream as it is and norms what it needs
  // From the residual stream after the layer to what it becomes, where set.
  Branch after;
};

struct DecoderSpec {
  int64_t width = 0;  // k, n
  int64_t vocab = 0;
  NormSpec norm;
  std::optional<NormSpec> post_norm;  // of post_norms, where it is another
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;

  float embedding_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;
  float logit_cap = 0;  // soft cap, 0: none

  // From the embedded tokens to the stream of the first layer, where set.
  Branch embedded;

  bool pre_norms = true;    // norms before attention and feed-forward: attn_norm, ffn_norm
  bool post_norms = false;  // norms after them: post_attention_norm, post_ffw_norm
  std::string_view final_norm = "output_norm";  // its tensor
  bool parallel = false;    // both branches see the same norm of the same stream
};

// Reads the keys that all decoders share: sizes, heads, layers, norm epsilon, rope with every scaling, scales and caps where the file
// has them. `pairing`: of the architecture. Where the next-token block is wanted (ModelOptions::beside), it is the last layer.
// vocab: of a file without an embedding.
DecoderSpec ReadDecoderSpec(const ModelSource& source, RopePairing pairing, std::optional<int64_t> vocab = {});

// The rope options of a file, with base frequency from `base_key` (or `base_default` without it).
RopeOptions ReadRopeOptions(const ModelSource& source, int64_t n_rot, std::string_view base_key, double base_default);

// A rope without scaling, with its base frequency from rope.freq_base_swa (or `base_default` without it): that of windowed layers.
RopeOptions WindowedRope(const ModelSource& source, int64_t n_rot, double base_default);

// Which layer of a run sees all.
enum class Unwindowed { kLast, kFirst };
// Makes every layer windowed but one of each run of `period`, unless the file lists them.
void SetWindowPattern(const ModelSource& source, int64_t period, DecoderSpec& spec, Unwindowed unwindowed = Unwindowed::kLast);

// Gives windowed layers a rope of their own.
void SetWindowedRope(DecoderSpec& spec, const RopeOptions& rope);

// Changes all layers alike.
inline void ForEachLayer(DecoderSpec& spec, const std::function<void(LayerSpec&)>& change) {
  for (LayerSpec& layer : spec.layers) change(layer);
}

// Layers without KV heads are those of another mixer: refuses one that has attention.
void ExpectKeyHeads(const ModelSource& source, const DecoderSpec& spec, size_t layer);

// The embedded tokens as the first layer sees them, [t, k]. table: token_embd.
ValueId BuildEmbedding(Parts& parts, const DecoderSpec& spec, ValueId table);

// One layer around the residual stream [t, k], which is the graph's layer at hand.
ValueId BuildLayer(Parts& parts, const DecoderSpec& spec, const LayerSpec& layer, ValueId x);

// The tensor of a model's output head: the embedding where the file has no other.
std::string HeadTensor(const ModelSource& source);

// The output head, with scale and cap. x: [t, k], after the final norm; head: its tensor.
ValueId BuildLogits(Parts& parts, const DecoderSpec& spec, ValueId x, const std::string& head);

// States the graph. Tensor names are llama.cpp's; fused attn_qkv and ffn_up tensors are taken apart by rows, biases
// are used where the file has them, a missing output head is the embedding. Of the next-token block, where that is wanted.
Graph BuildDecoder(const ModelSource& source, const DecoderSpec& spec);

}  // namespace lockstep
