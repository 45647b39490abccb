// Files of random weights for tests of the quantiser.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/format.h"
#include "gguf/gguf_writer.h"

namespace lockstep::testing {

struct TestTensor {
  std::string name;
  std::vector<uint64_t> dims;
  std::string type = "F32";
};

struct TestModel {
  std::map<std::string, uint32_t> keys = {
      {"block_count", 16}, {"attention.head_count", 8}, {"attention.head_count_kv", 2}};
  std::vector<TestTensor> tensors;
  // Replaces one number of the first tensor.
  std::optional<std::pair<size_t, float>> damage;

  std::string Write(const std::string& path, uint32_t shard = 0, uint32_t shards = 1) const {
    GgufWriter writer(path);
    if (shard == 0) {
      writer.Add("general.architecture", "llama");
      writer.Add("general.file_type", uint32_t{0});
      writer.Add("general.name", "a test");
      for (const auto& [key, value] : keys) writer.Add("llama." + key, value);
    }
    if (shards > 1) {
      writer.Add("split.no", static_cast<uint16_t>(shard));
      writer.Add("split.count", static_cast<uint16_t>(shards));
      writer.Add("split.tensors.count", static_cast<int32_t>(tensors.size()));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i % shards == shard)
        writer.AddTensor(tensors[i].name, FindFormat(tensors[i].type)->id, tensors[i].dims);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i % shards == shard) writer.Write(Bytes(i));
    }
    writer.Finish();
    return path;
  }

  std::vector<std::byte> Bytes(size_t i) const {
    std::mt19937 random(static_cast<unsigned>(i));
    std::normal_distribution<float> normal(0, 0.05f);
    uint64_t count = 1;
    for (uint64_t dim : tensors[i].dims) count *= dim;
    std::vector<float> x(count);
    for (float& v : x) v = normal(random);
    if (damage && i == 0) x[damage->first] = damage->second;
    const Format& format = *FindFormat(tensors[i].type);
    std::vector<std::byte> bytes(static_cast<size_t>(format.RowBytes(static_cast<int64_t>(count))));
    format.encode(x.data(), static_cast<int64_t>(count) / format.block, bytes.data());
    return bytes;
  }
};

// A model with all that has a role, two rows a matrix.
inline TestModel LayeredModel(bool tied, uint32_t experts) {
  TestModel model;
  model.tensors.push_back({"token_embd.weight", {256, 2}});
  if (!tied) model.tensors.push_back({"output.weight", {256, 2}});
  if (experts != 0) model.keys["expert_count"] = experts;
  for (int i = 0; i < 16; ++i) {
    const auto add = [&](std::string_view name, std::vector<uint64_t> dims) {
      model.tensors.push_back({fmt::format("blk.{}.{}.weight", i, name), std::move(dims)});
    };
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) add(name, {256, 2});
    add("attn_norm", {256});
    if (experts != 0) add("ffn_gate_inp", {256, experts});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      experts != 0 ? add(fmt::format("{}_exps", name), {256, 2, experts}) : add(name, {256, 2});
    }
  }
  return model;
}

}  // namespace lockstep::testing
