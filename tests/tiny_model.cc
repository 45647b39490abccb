#include "tiny_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "base/error.h"
#include "gguf/gguf_writer.h"
#include "noise.h"
#include "tiny_compressed.h"
#include "tiny_gated_streams.h"
#include "tiny_mixers.h"

namespace lockstep::test {
namespace {

// The bytes as byte-level BPE spells them: printable ones as themselves, the others from U+0100 on.
std::vector<std::string> ByteTokens() {
  std::vector<std::string> tokens;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int point = printable ? byte : next++;
    if (point < 128) {
      tokens.emplace_back(1, static_cast<char>(point));
    } else {
      tokens.push_back(
          {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 63))});
    }
  }
  return tokens;
}

// Three control tokens, the bytes, pairs of letters with a merge each.
void AddTokenizer(int64_t vocab, std::map<std::string, TinyValue>& keys) {
  std::vector<std::string> tokens = {"<pad>", "<s>", "</s>"}, merges;
  std::ranges::copy(ByteTokens(), std::back_inserter(tokens));
  std::vector<int32_t> types(tokens.size(), 1);
  std::fill_n(types.begin(), 3, 3);
  for (int i = 0; static_cast<int64_t>(tokens.size()) < vocab; ++i) {
    const std::string left(1, static_cast<char>('a' + i / 26 % 26)),
        right(1, static_cast<char>('a' + i % 26));
    const bool pair = i < 26 * 26;
    tokens.push_back(pair ? left + right : fmt::format("[UNUSED{}]", i));
    types.push_back(pair ? 1 : 5);
    if (pair) merges.push_back(left + " " + right);
  }
  keys["tokenizer.ggml.model"] = "gpt2";
  keys["tokenizer.ggml.pre"] = "gpt-2";
  keys["tokenizer.ggml.tokens"] = tokens;
  keys["tokenizer.ggml.token_type"] = types;
  keys["tokenizer.ggml.merges"] = merges;
  keys["tokenizer.ggml.bos_token_id"] = uint32_t{1};
  keys["tokenizer.ggml.eos_token_id"] = uint32_t{2};
  keys["tokenizer.ggml.padding_token_id"] = uint32_t{0};
  keys["tokenizer.ggml.add_bos_token"] = false;
}

void Fill(TinyTensor& tensor, uint64_t seed) {
  uint64_t count = 1;
  for (uint64_t dim : tensor.dims) count *= dim;
  const uint64_t start = NameHash(tensor.name, seed);
  const bool decay = tensor.name.ends_with("ssm_a");
  const bool vector = tensor.dims.size() == 1 || decay;
  const bool norm = tensor.name.ends_with("norm.weight");
  const float scale = vector ? 0.3f : std::sqrt(3 / static_cast<float>(tensor.dims[0]));
  tensor.values.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    tensor.values[i] = (norm ? 1.f : decay ? -0.5f : 0.f) + scale * static_cast<float>(Noise(start, i + 1));
  }
}

void AddExpertKeys(const TinyExperts& experts, TinyModel& model) {
  const std::pair<const char*, int64_t> counts[] = {
      {"expert_count", experts.count},
      {"expert_used_count", experts.used},
      {"expert_feed_forward_length", experts.width},
      {"expert_shared_feed_forward_length", experts.shared},
      {"leading_dense_block_count", experts.dense_layers}};
  for (const auto& [name, count] : counts) {
    if (count != 0) model.key(name) = static_cast<uint32_t>(count);
  }
}

// Architectures with experts whose names do not end so.
constexpr std::string_view kWithExperts[] = {"flint", "gpt-oss",    "laguna", "mellum",
                                             "mimo2", "minimax-m2", "step35"};

// What architectures with experts have beside them.
void SetExperts(TinyOptions& options) {
  options.experts.count = 6;
  const std::string& name = options.architecture;
  auto any = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
  };
  if (any({"mimo2", "mellum", "flint", "laguna", "gpt-oss", "cohere2moe", "step35"}))
    options.window = 8;
  if (any({"glm4moe", "mimo2", "laguna", "minimax-m2", "ernie4_5-moe", "step35"}))
    options.experts.correction = true;
  if (any({"qwen2moe", "glm4moe", "flint", "laguna", "ernie4_5-moe", "hunyuan-moe", "cohere2moe",
           "step35"})) {
    options.experts.shared = 64;
  }
  if (any({"glm4moe", "mimo2", "flint", "laguna", "ernie4_5-moe", "cohere2moe", "step35"}))
    options.experts.dense_layers = 1;
  options.qk_norm =
      any({"qwen3moe", "glm4moe", "mellum", "flint", "laguna", "hunyuan-moe", "step35"});
  options.qk_norm_all = any({"minimax-m2"});
  options.experts.shared_gate = any({"qwen2moe"});
  options.sinks = any({"gpt-oss", "mimo2", "flint"});
  options.head_gate = any({"laguna", "step35"});
  options.biases = any({"gpt-oss"});
  options.tied = options.layer_norms = any({"cohere2moe"});
  if (any({"gpt-oss", "glm4moe"})) options.ff_norm = "post_attention_norm";
  if (any({"cohere2moe"})) options.ff_norm = "";
}

void SetLatent(TinyOptions& options) {
  options.kv_heads = 1;
  options.head_dim = 48;
  options.q_rank = 32, options.kv_rank = 32, options.rope = 16, options.dv = 16;
}

// attn_output reads the heads' values: dv numbers each.
void AddLatentKeys(const TinyOptions& o, TinyModel& model) {
  const std::pair<const char*, int64_t> counts[] = {{"attention.q_lora_rank", o.q_rank},
                                                    {"attention.kv_lora_rank", o.kv_rank},
                                                    {"attention.key_length", o.kv_rank + o.rope},
                                                    {"attention.value_length", o.kv_rank},
                                                    {"attention.key_length_mla", o.head_dim},
                                                    {"attention.value_length_mla", o.dv},
                                                    {"rope.dimension_count", o.rope},
                                                    {"attention.indexer.head_count", o.index_heads},
                                                    {"attention.indexer.key_length", o.index_dim},
                                                    {"attention.indexer.top_k", o.index_top},
                                                    {"attention.indexer.kpool", o.index_pool}};
  for (const auto& [name, count] : counts) {
    if (count != 0) model.key(name) = static_cast<uint32_t>(count);
  }
}

// The tensors of one layer's latent attention but its output projection.
void AddLatentTensors(const TinyOptions& o, const AddTensor& add) {
  const int64_t nope = o.head_dim - o.rope;
  if (o.q_rank != 0) {
    add("attn_q_a.weight", {o.width, o.q_rank});
    if (o.biases) add("attn_q_a.bias", {o.q_rank});
    add("attn_q_a_norm.weight", {o.q_rank});
  }
  add(o.q_rank != 0 ? "attn_q_b.weight" : "attn_q.weight",
      {o.q_rank != 0 ? o.q_rank : o.width, o.heads * o.head_dim});
  add("attn_kv_a_mqa.weight", {o.width, o.kv_rank + o.rope});
  if (o.biases) add("attn_kv_a_mqa.bias", {o.kv_rank + o.rope});
  add("attn_kv_a_norm.weight", {o.kv_rank});
  if (o.kv_together) {
    add("attn_kv_b.weight", {o.kv_rank, o.heads * (nope + o.dv)});
  } else {
    add("attn_k_b.weight", {nope, o.kv_rank, o.heads});
    add("attn_v_b.weight", {o.kv_rank, o.dv, o.heads});
  }
  if (o.index_heads == 0) return;
  add("indexer.attn_q_b.weight", {o.q_rank, o.index_heads * o.index_dim});
  add("indexer.attn_k.weight", {o.width, o.index_dim});
  add("indexer.k_norm.weight", {o.index_dim});
  add("indexer.k_norm.bias", {o.index_dim});
  add("indexer.proj.weight", {o.width, o.index_heads});
  if (o.index_pool == 1) return;
  add("indexer_compressor_gate.weight", {o.width, o.index_dim});
  add("indexer_compressor_ape.weight", {o.index_dim, o.index_pool});
}

}  // namespace

void AddExperts(const TinyOptions& o, const AddTensor& add) {
  const TinyExperts& e = o.experts;
  add("ffn_gate_inp.weight", {o.width, e.count});
  if (o.biases) add("ffn_gate_inp.bias", {e.count});
  if (e.correction) add("exp_probs_b.bias", {e.count});
  for (const std::string name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    const bool down = name == "ffn_down";
    const int64_t in = down ? e.width : o.width, out = down ? o.width : e.width;
    for (int64_t i = 0; e.apart && i < e.count; ++i)
      add(fmt::format("{}.{}.weight", name, i), {in, out});
    if (!e.apart) add(name + "_exps.weight", {in, out, e.count});
    if (o.biases) add(name + "_exps.bias", {out, e.count});
    if (e.shared != 0)
      add(name + "_shexp.weight", {down ? e.shared : o.width, down ? o.width : e.shared});
  }
  if (e.shared_gate) add("ffn_gate_inp_shexp.weight", {o.width});
}

TinyOptions WindowedOptions() {
  TinyOptions options = OptionsFor("gemma2");
  options.kv_heads = 1;
  return options;
}

TinyOptions HybridOptions() { return OptionsFor("qwen35"); }

TinyOptions OptionsFor(std::string_view architecture) {
  TinyOptions options;
  options.architecture = architecture;
  if (SetMixer(options)) return options;
  if (architecture == "gemma2" || architecture == "gemma3") {
    options.window = 8;
    options.tied = true;
    options.post_norms = true;
    options.qk_norm = architecture == "gemma3";
    options.layers = architecture == "gemma3" ? 6 : 2;
  } else if (architecture == "gemma4") {
    options.window = 8;
    options.layers = 3;
    options.tied = options.post_norms = options.qk_norm = options.keys_as_values = true;
    options.shared_kv = 1;
    options.layer_inputs = 32;
  } else if (architecture == "muse-glimmer") {
    options.window = 8;
    options.layers = 4;
    options.post_norms = options.qk_norm = options.head_gate = true;
  } else if (architecture == "olmo2") {
    options.pre_norms = false;
    options.post_norms = options.qk_norm_all = true;
  } else if (architecture == "glm4") {
    options.fused = options.post_norms = true;
  } else if (architecture == "cohere2") {
    options.tied = true;
    options.window = 8;
    options.layers = 4;
    options.ff_norm = "";
  } else if (architecture == "phi3") {
    options.fused = true;
    options.window = 8;
  } else if (architecture == "deepseek2" || architecture == "mistral4") {
    SetLatent(options);
    options.kv_together = architecture == "deepseek2";
    options.q_rank = architecture == "deepseek2" ? 0 : 32;
    options.biases = architecture == "mistral4";
  } else if (architecture == "deepseek32" || architecture == "glm-dsa") {
    SetLatent(options);
    options.index_heads = 8, options.index_dim = 32, options.index_top = 5;
  } else if (architecture.ends_with("moe") ||
             std::ranges::find(kWithExperts, architecture) != std::end(kWithExperts)) {
    SetExperts(options);
  } else if (architecture == "deepseek4") {
    options.mixer = TinyOptions::Mixer::kCompressed;
    options.layers = 3;
    options.window = 8;
    options.head_dim = 32;
    options.index_heads = 2, options.index_dim = 16, options.index_top = 1;
    options.experts = {.count = 6, .shared = 32, .correction = true};
  } else if (architecture == "qwen3" || architecture == "hunyuan-dense") {
    options.qk_norm = true;
  } else {
    options.biases = true;
  }
  return options;
}

TinyModel::TinyModel(const TinyOptions& o) : prefix_(o.architecture + ".") {
  auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
  keys["general.architecture"] = o.architecture;
  const int64_t blocks = o.layers + o.next_token;
  key("block_count") = count(blocks);
  if (o.next_token) key("nextn_predict_layers") = uint32_t{1};
  key("context_length") = count(o.context);
  key("embedding_length") = count(o.width);
  key("feed_forward_length") = count(o.ff_width);
  key("attention.head_count") = count(o.heads);
  key("attention.head_count_kv") = count(o.kv_heads);
  key("attention.key_length") = count(o.head_dim);
  key("attention.value_length") = count(o.head_dim);
  key(o.layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon") = 1e-5f;
  if (o.experts.count != 0) AddExpertKeys(o.experts, *this);
  if (o.window != 0) key("attention.sliding_window") = count(o.window);
  if (o.kv_rank != 0) AddLatentKeys(o, *this);
  if (o.shared_kv != 0) key("attention.shared_kv_layers") = count(o.shared_kv);
  if (o.layer_inputs != 0) key("embedding_length_per_layer_input") = count(o.layer_inputs);
  AddMixerKeys(o, *this);
  AddTokenizer(o.vocab, keys);

  auto add = [&](std::string name, std::vector<int64_t> dims) {
    tensors.push_back({std::move(name), {dims.begin(), dims.end()}, {}});
    Fill(tensors.back(), o.seed);
  };
  add("token_embd.weight", {o.width, o.vocab});
  add("output_norm.weight", {o.width});
  if (!o.tied) add("output.weight", {o.width, o.vocab});
  if (o.layer_inputs != 0) {
    add("per_layer_token_embd.weight", {o.layers * o.layer_inputs, o.vocab});
    add("per_layer_model_proj.weight", {o.width, o.layers * o.layer_inputs});
    add("per_layer_proj_norm.weight", {o.layer_inputs});
  }
  if (o.mixer == TinyOptions::Mixer::kCompressed) {
    AddCompressed(o, *this, add);
    return;
  }
  if (o.mixer == TinyOptions::Mixer::kGatedStreams) {
    AddGatedStreams(o, *this, add);
    return;
  }
  const int64_t q = o.heads * (o.kv_rank != 0 ? o.dv : o.head_dim), kv = o.kv_heads * o.head_dim;
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    if (i == o.layers) {
      for (const char* name : {"enorm", "hnorm", "shared_head_norm"})
        add(fmt::format("{}nextn.{}.weight", block, name), {o.width});
      add(block + "nextn.eh_proj.weight", {2 * o.width, o.width});
    }
    auto project = [&](const std::string& name, int64_t in, int64_t out) {
      add(block + name + ".weight", {in, out});
      if (o.biases) add(block + name + ".bias", {out});
    };
    auto norm = [&](const std::string& name, int64_t width) {
      add(block + name + ".weight", {width});
    };
    if (o.pre_norms) norm("attn_norm", o.width);
    if (o.pre_norms && !o.ff_norm.empty()) norm(std::string(o.ff_norm), o.width);
    if (o.post_norms) norm("post_attention_norm", o.width);
    if (o.post_norms) norm("post_ffw_norm", o.width);
    auto add_here = [&](const std::string& name, std::vector<int64_t> dims) {
      add(block + name, std::move(dims));
    };
    AddStreams(o, add_here);
    if (o.experts.count != 0 && i >= o.experts.dense_layers) {
      AddExperts(o, add_here);
    } else {
      if (!o.fused) project("ffn_gate", o.width, o.ff_width);
      project("ffn_up", o.width, o.fused ? 2 * o.ff_width : o.ff_width);
      project("ffn_down", o.ff_width, o.width);
    }
    if (o.mixer != TinyOptions::Mixer::kAttention && i % 2 == 0 && i < o.layers) {
      AddMixer(o, add_here);
      continue;
    }
    if (o.qk_norm) norm("attn_q_norm", o.head_dim);
    const bool own_keys = i < o.layers - o.shared_kv || i >= o.layers;
    if (o.qk_norm && own_keys) norm("attn_k_norm", o.head_dim);
    if (o.qk_norm_all) norm("attn_q_norm", q);
    if (o.qk_norm_all) norm("attn_k_norm", kv);
    if (o.layer_inputs != 0) {
      project("inp_gate", o.width, o.layer_inputs);
      project("proj", o.layer_inputs, o.width);
      norm("post_norm", o.width);
    }
    if (o.sinks) norm("attn_sinks", o.heads);
    if (o.head_gate) project("attn_gate", o.width, o.heads);
    if (o.kv_rank != 0) {
      AddLatentTensors(o, add_here);
    } else if (o.fused) {
      project("attn_qkv", o.width, q + 2 * kv);
    } else {
      project("attn_q", o.width, o.gated_queries ? 2 * q : q);
      if (own_keys) project("attn_k", o.width, kv);
      if (own_keys && !o.keys_as_values) project("attn_v", o.width, kv);
    }
    project("attn_output", q, o.width);
  }
}

TinyValue& TinyModel::key(std::string_view name) { return keys[prefix_ + std::string(name)]; }

TinyTensor& TinyModel::tensor(std::string_view name) {
  auto at = std::ranges::find(tensors, name, &TinyTensor::name);
  LOCKSTEP_CHECK(at != tensors.end(), "no tensor {}", name);
  return *at;
}

void TinyModel::Remove(std::string_view name) {
  tensors.erase(tensors.begin() + (&tensor(name) - tensors.data()));
}

void TinyModel::Resize(std::string_view name, std::vector<uint64_t> dims) {
  TinyTensor& resized = tensor(name);
  resized.dims = std::move(dims);
  Fill(resized, 1);
}

void TinyModel::Write(const std::string& path) const {
  GgufWriter writer(path);
  for (const auto& [name, value] : keys) {
    std::visit(
        [&](const auto& content) {
          using T = std::decay_t<decltype(content)>;
          if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            writer.Add(name, GgufArrayData::OfStrings(std::span<const std::string>(content)));
          } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
            writer.Add(name, GgufArrayData::Of(std::span<const int32_t>(content)));
          } else {
            writer.Add(name, content);
          }
        },
        value);
  }
  const uint32_t f32 = FindFormat("F32")->id;
  for (const TinyTensor& tensor : tensors) writer.AddTensor(tensor.name, f32, tensor.dims);
  for (const TinyTensor& tensor : tensors) writer.Write(std::as_bytes(std::span(tensor.values)));
  writer.Finish();
}

size_t WriteInFormat(const GgufFile& file, const Format& format, const std::string& path,
                     std::string_view keep) {
  size_t count = 0;
  auto encoded = [&](const GgufTensor& tensor) {
    return tensor.dims_count > 1 && format.encode != nullptr &&
           (keep.empty() || tensor.name.find(keep) == tensor.name.npos) &&
           tensor.dims[0] % static_cast<uint64_t>(format.block) == 0;
  };
  GgufWriter writer(path);
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    if (entry.key != kGgufAlignmentKey) writer.Add(entry.key, entry.value);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const auto dims = std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count));
    writer.AddTensor(tensor.name, encoded(tensor) ? format.id : tensor.type->id, dims);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (!encoded(tensor)) {
      writer.Write(tensor.data);
      continue;
    }
    const Format& source = *FindFormat(tensor.type->id);
    const auto elements = static_cast<int64_t>(tensor.elements());
    std::vector<float> values(tensor.elements());
    source.decode(tensor.data.data(), elements / source.block, values.data());
    std::vector<std::byte> blocks(static_cast<size_t>(format.RowBytes(elements)));
    format.encode(values.data(), elements / format.block, blocks.data());
    writer.Write(blocks);
    ++count;
  }
  writer.Finish();
  return count;
}

}  // namespace lockstep::test
