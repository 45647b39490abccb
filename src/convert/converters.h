// The architectures that can be converted: one file in archs/ and one row in converters.cc each.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "convert/recipe.h"

namespace lockstep {

// Where a rule is being applied.
struct Place {
  const Config& config;
  int64_t layer = 0;     // -1 outside the layers
  bool is_bias = false;  // of a rule for both weight and bias
};

// One tensor of the file and where it comes from.
struct TensorRule {
  // Name in the checkpoint (of a layer: after "model.layers.N."). May hold
  //   {e}            each expert in turn: their tensors are stacked, [e, ...]
  //   a final ".*"   the weight, which must be there, and the bias, where there is one
  std::string_view from;
  // Name in the file (of a layer: after "blk.N."), with ".*" where `from` has it. Empty: the tensor is
  // known and left out.
  std::string_view to;
  // What happens to the numbers; each expert's before they are stacked. Null: nothing.
  Values (*transform)(const Values& values, const Place& place) = nullptr;
  // Layers (or, outside the layers, models) that have the tensor. Null: all.
  bool (*where)(const Place& place) = nullptr;
  Stored stored = Stored::kByType;
  bool optional = false;  // where it is absent the file has none either
  // Where the checkpoint has this tensor of the layer, the rule is not for it.
  std::string_view unless = "";
};

// How checkpoints of one architecture become files. Names in files are llama.cpp's.
struct Converter {
  std::string_view architecture;              // general.architecture of the file
  std::vector<std::string_view> classes;      // "architectures" of config.json
  std::vector<std::string_view> model_types;  // "model_type", where no class is known
  // What the architecture means by keys that a release leaves out, as a JSON object.
  std::string_view defaults = "{}";
  // Sets the hyper-parameters. SetDecoderKeys() has what most have in common.
  void (*keys)(const Config& config, Keys& keys) = nullptr;
  std::vector<TensorRule> model_tensors = {};
  std::vector<TensorRule> layer_tensors = {};
  // Layers with tensors, where that is not num_hidden_layers.
  int64_t (*layers)(const Config& config) = nullptr;
  // What layers are called, "model.layers." before a number: of several, the one that the checkpoint has.
  std::vector<std::string_view> layer_stems = {"model.layers."};
  // What the names of a layer's tensors begin with, where no stem says it.
  std::string (*layer_name)(const Config& config, int64_t layer) = nullptr;
  // Tensors that no table can state. Null: none.
  void (*more)(Recipe& recipe) = nullptr;
  // Whether this is the one, where several share a class. Null: yes.
  bool (*accepts)(const Config& config) = nullptr;
  // A draft: without a tokenizer in its folder it has that of its model.
  bool of_model = false;
};

// Rows of several tables as one.
std::vector<TensorRule> Join(std::initializer_list<std::vector<TensorRule>> tables);

// Embedding, final norm and output head; the head is left out where it is the embedding.
std::vector<TensorRule> ModelTensors();
// self_attn.{q,k,v,o}_proj; `rotated` is applied to queries and keys.
std::vector<TensorRule> AttentionTensors(Values (*queries)(const Values&, const Place&) = nullptr,
                                         Values (*keys)(const Values&, const Place&) = nullptr);
// mlp.{gate,up,down}_proj.
std::vector<TensorRule> GatedTensors();
// input_layernorm before attention, post_attention_layernorm before the feed-forward.
std::vector<TensorRule> PreNormTensors();
// Norms of each head's query and key: self_attn.{q,k}_norm.
std::vector<TensorRule> HeadNormTensors();

// For architectures that rotate neighbouring pairs in files: PairHalves over num_attention_heads and
// num_key_value_heads.
Values PairQueries(const Values& values, const Place& place);
Values PairKeys(const Values& values, const Place& place);
// For norms that are stored less 1.
Values AddOne(const Values& values, const Place& place);

// Sizes, heads, norm epsilon and rotary parameters (SetRopeKeys) under the names that most
// checkpoints share.
void SetDecoderKeys(const Config& config, Keys& keys);
// The same for architectures none of whose files has windows; refused where use_sliding_window is on.
void SetUnwindowedKeys(const Config& config, Keys& keys);
// Rotary base, dimensions and scaling.
void SetRopeKeys(const Config& config, const Config& rope, Keys& keys);
// attention.sliding_window, and which layers have it where that is not all but each period-th
// (period 0: all).
void SetWindowKeys(const Config& config, int64_t period, Keys& keys);
// The same of the first Mistral and Mixtral, all of whose layers have one, where a release says so or nothing.
void SetMistralWindow(const Config& config, Keys& keys);
// Tensors of scaled frequencies: rope_freqs (Llama 3), rope_factors_long and _short (LongRoPE).
void EmitRopeTensors(Recipe& recipe);
// The same where files have a number for each of `pairs`, more than are rotated by this rope.
void EmitRopeTensorsOf(Recipe& recipe, size_t pairs);

// By row.
std::span<const Converter> Converters();
// The converter of a checkpoint. Refused naming its class and the known ones.
const Converter& FindConverter(const Config& config);

// Fills in keys and tensors. Refused where a key or tensor that is needed is absent, and where a
// tensor of the checkpoint has no place.
void ApplyConverter(const Converter& converter, Checkpoint& checkpoint, Recipe& recipe);

}  // namespace lockstep
