// Small models with random weights, made where a test needs one: every part of a file can be changed
// or left out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/format.h"
#include "gguf/gguf_file.h"

namespace lockstep::test {

// Experts in the layers behind the first `dense_layers`.
struct TinyExperts {
  int64_t count = 0;  // 0: none
  int64_t used = 2;
  int64_t width = 32;
  int64_t shared = 0;  // width of what every token sees, 0: nothing
  int64_t dense_layers = 0;
  bool correction = false;   // exp_probs_b
  bool shared_gate = false;  // ffn_gate_inp_shexp
  bool apart = false;        // each expert has tensors of its own
};

// What a tiny model has. The defaults are fixture F1: a dense decoder of two layers.
struct TinyOptions {
  std::string architecture = "llama";
  int64_t layers = 2;
  int64_t width = 64;
  int64_t heads = 4, kv_heads = 2;
  int64_t head_dim = 16;
  int64_t ff_width = 96;
  int64_t vocab = 300;  // at least 259
  int64_t context = 512;
  int64_t window = 0;  // positions that windowed layers see, 0: no window
  bool tied = false;   // the output head is the embedding
  bool biases = false;
  bool qk_norm = false;
  bool qk_norm_all = false;  // one norm over all heads
  bool pre_norms = true;
  bool sinks = false;
  bool head_gate = false;    // attn_gate, one number for each head
  bool layer_norms = false;  // with a mean
  TinyExperts experts;
  bool post_norms = false;
  std::string_view ff_norm = "ffn_norm";  // empty: none
  bool keys_as_values = false;            // no attn_v
  int64_t shared_kv = 0;                  // last layers without keys of their own
  int64_t layer_inputs = 0;               // numbers that each layer is told of a token, 0: none
  bool fused = false;  // attn_qkv, and ffn_up with the gate's rows first
  // Latent attention where kv_rank is not 0: its heads have head_dim numbers, of which `rope` are rotated.
  int64_t q_rank = 0, kv_rank = 0, rope = 0, dv = 0;
  bool kv_together = false;  // attn_kv_b instead of attn_k_b and attn_v_b
  int64_t index_heads = 0, index_dim = 0, index_top = 0;  // of an indexer in each layer
  int64_t index_pool = 1;                                 // positions that it selects together
  // All layers but each second have this in place of attention.
  // kCompressed: every layer's, as tiny_compressed.h has them.
  enum class Mixer {
    kAttention,
    kShortConv,
    kDeltaNet,
    kWovenDeltaNet,
    kMamba,
    kKimiDelta,  // with two streams
    kCompressed,
    kGatedStreams  // and attention, as tiny_gated_streams.h has them
  };
  Mixer mixer = Mixer::kAttention;
  bool next_token = false;     // a block behind the layers predicts the token after the next
  bool gated_queries = false;  // attn_q has a gate beside each head's query
  uint64_t seed = 1;
};

// F3: a hybrid of gated delta networks, short convolutions before them, and attention.
TinyOptions HybridOptions();

// F2: one KV head, every second layer windowed to 8 positions.
TinyOptions WindowedOptions();

// The options under which an architecture's graph uses everything that it can.
TinyOptions OptionsFor(std::string_view architecture);

using TinyValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>,
                               std::vector<std::string>>;

struct TinyTensor {
  std::string name;
  std::vector<uint64_t> dims;  // fastest first
  std::vector<float> values;
};

// A model as keys and tensors. Random weights keep activations near 1 whatever the sizes; norms
// scatter around 1.
struct TinyModel {
  explicit TinyModel(const TinyOptions& options);

  std::map<std::string, TinyValue> keys;
  std::vector<TinyTensor> tensors;

  // A key of the architecture, without its prefix.
  TinyValue& key(std::string_view name);
  // The tensor of this name, which must exist.
  TinyTensor& tensor(std::string_view name);
  void Remove(std::string_view tensor);
  // Gives a tensor other sizes, filled anew.
  void Resize(std::string_view tensor, std::vector<uint64_t> dims);

  // Writes a GGUF file; every tensor is F32.
  void Write(const std::string& path) const;

 private:
  std::string prefix_;
};

// Ids of a tiny model's vocabulary.
inline std::vector<int32_t> SomeTokens(int64_t count, int32_t step = 37) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(3 + i * step % 290));
  return tokens;
}

using AddTensor = std::function<void(const std::string& name, std::vector<int64_t> dims)>;
// The tensors of one layer's experts.
void AddExperts(const TinyOptions& options, const AddTensor& add);

// Writes `file` again with its matrices in `format`, for tests of one model in many formats. Vectors,
// matrices whose rows are not whole blocks and, unless empty, those with `keep` in their name stay as
// they are. Returns how many matrices were encoded.
size_t WriteInFormat(const GgufFile& file, const Format& format, const std::string& path,
                     std::string_view keep = {});

}  // namespace lockstep::test
