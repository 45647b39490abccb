// Checkpoints made on the spot, with anything changed that a test wants to see refused.
#pragma once

#include <boost/json.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "gguf/gguf_file.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {

struct TestTensor {
  std::string type;
  std::vector<uint64_t> shape;
  std::string bytes;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// An F32 tensor of numbers that differ from name to name.
inline TestTensor NumberedTensor(const std::string& name, std::vector<uint64_t> shape) {
  uint64_t size = 1;
  for (uint64_t dim : shape) size *= dim;
  uint32_t state = 7;
  for (char c : name) state = state * 31 + static_cast<unsigned char>(c);
  std::vector<float> values(size);
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state >> 16) - 32768) / 16384;
  }
  return {"F32", std::move(shape), BytesOf(values)};
}

// A Llama of two layers, and a byte-level vocabulary of eight tokens.
struct TestCheckpoint {
  boost::json::object config = boost::json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "vocab_size": 8, "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}})")
                                   .as_object();
  std::map<std::string, TestTensor> tensors;
  std::string tokenizer = R"({"model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2,
    "b": 3, "c": 4, "ab": 5}, "merges": ["a b"]}, "added_tokens": [
    {"id": 0, "content": "<s>", "special": true}, {"id": 1, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"}})";

  TestCheckpoint() {
    Add("model.embed_tokens.weight", {8, 64});
    Add("model.norm.weight", {64});
    Add("lm_head.weight", {8, 64});
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      const std::string at(layer);
      Add(at + "input_layernorm.weight", {64});
      Add(at + "post_attention_layernorm.weight", {64});
      Add(at + "self_attn.q_proj.weight", {64, 64});
      Add(at + "self_attn.k_proj.weight", {32, 64});
      Add(at + "self_attn.v_proj.weight", {32, 64});
      Add(at + "self_attn.o_proj.weight", {64, 64});
      Add(at + "mlp.gate_proj.weight", {96, 64});
      Add(at + "mlp.up_proj.weight", {96, 64});
      Add(at + "mlp.down_proj.weight", {64, 96});
    }
  }
  void Add(const std::string& name, std::vector<uint64_t> shape) {
    tensors[name] = NumberedTensor(name, std::move(shape));
  }

  // Writes everything but the weights.
  void PutFiles(const TempFolder& folder) const {
    folder.Put("config.json", boost::json::serialize(config));
    folder.Put("tokenizer.json", tokenizer);
  }
  // Writes those weights for which `wanted(name)`.
  template <typename Wanted>
  void PutWeights(const std::string& path, Wanted wanted) const {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, tensor] : tensors) {
      if (!wanted(name)) continue;
      items.push_back({name, FindSafetensorsType(tensor.type)->name, tensor.shape,
                       std::as_bytes(std::span(tensor.bytes))});
    }
    WriteSafetensors(path, items);
  }
  void Put(const TempFolder& folder) const {
    PutFiles(folder);
    PutWeights(folder / "model.safetensors", [](const std::string&) { return true; });
  }
  // Converts into `folder`; the file's path.
  std::string Convert(const TempFolder& folder, const std::string& type = "f32") const {
    Put(folder);
    return ConvertFolder(folder, type);
  }
  // The refusal, or "".
  std::string Refusal() const {
    TempFolder folder;
    return MessageOf([&] { Convert(folder); });
  }

  static std::string ConvertFolder(const TempFolder& folder, const std::string& type = "f32") {
    const std::string path = folder / "out.gguf";
    ConvertCheckpoint({.folder = folder / "", .output = path, .type = type});
    return path;
  }
};

// What two files must share to be the same model: all keys but the name of the folder, and all tensors.
inline std::string ContentOf(const std::string& path) {
  const GgufFile file = GgufFile::Open(path);
  std::string content;
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    if (entry.key == "general.name") continue;
    content += fmt::format("{} {}\n", entry.key, entry.value.Describe());
    if (const auto* number = std::get_if<uint64_t>(&entry.value.data)) {
      content += fmt::format("{}\n", *number);
    }
    if (const auto* number = std::get_if<double>(&entry.value.data)) {
      content += fmt::format("{}\n", *number);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    content += fmt::format("{} {} {} {}\n", tensor.name, tensor.type->name, tensor.dims[0],
                           tensor.dims[1]);
    content.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  return content;
}

inline std::vector<float> FloatsOf(const GgufFile& file, std::string_view name) {
  const GgufTensor tensor = file.RequireTensor(name);
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

}  // namespace lockstep::test
