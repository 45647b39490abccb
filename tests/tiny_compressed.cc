#include "tiny_compressed.h"

#include <fmt/format.h>

namespace lockstep::test {
namespace {

constexpr int64_t kQueryRank = 32, kRotated = 8, kGroups = 2, kOutputRank = 24, kStreams = 4;
constexpr int64_t kHashed = 1;  // layers whose experts are chosen by token
// Positions of a key, by layer; windows of the last overlap.
constexpr int32_t kPools[] = {0, 8, 2};

void AddKeys(const TinyOptions& o, TinyModel& model) {
  const std::pair<const char*, int64_t> counts[] = {{"attention.head_count_kv", 1},
                                                    {"attention.q_lora_rank", kQueryRank},
                                                    {"attention.output_lora_rank", kOutputRank},
                                                    {"attention.output_group_count", kGroups},
                                                    {"attention.indexer.head_count", o.index_heads},
                                                    {"attention.indexer.key_length", o.index_dim},
                                                    {"attention.indexer.top_k", o.index_top},
                                                    {"rope.dimension_count", kRotated},
                                                    {"hyper_connection.count", kStreams},
                                                    {"hyper_connection.sinkhorn_iterations", 3},
                                                    {"hash_layer_count", kHashed},
                                                    {"expert_gating_func", 4}};
  for (const auto& [name, count] : counts) model.key(name) = static_cast<uint32_t>(count);
  model.key("attention.compress_ratios") =
      std::vector<int32_t>(std::begin(kPools), std::end(kPools));
  model.key("attention.compress_rope_freq_base") = 40000.f;
  model.key("hyper_connection.epsilon") = 1e-3f;
  model.key("swiglu_clamp_exp") = 1.5f;
}

void AddMixing(const std::string& name, const TinyOptions& o, int64_t scales, TinyModel& model,
               const AddTensor& add) {
  const int64_t weights = scales == 1 ? kStreams : kStreams * (2 + kStreams);
  add(name + "_fn.weight", {kStreams * o.width, weights});
  add(name + "_base.weight", {weights});
  add(name + "_scale.weight", {scales});
  // Large, so that streams differ.
  for (float& scale : model.tensors.back().values) scale = 2;
}

void AddCompressor(const std::string& name, const TinyOptions& o, int64_t d, int64_t pool,
                   int64_t channels, const AddTensor& add) {
  add(name + "_kv.weight", {o.width, channels});
  add(name + "_gate.weight", {o.width, channels});
  add(name + "_ape.weight", {channels, pool});
  add(name + "_norm.weight", {d});
}

void AddAttention(const TinyOptions& o, size_t layer, const AddTensor& add) {
  add("attn_q_a.weight", {o.width, kQueryRank});
  add("attn_q_a_norm.weight", {kQueryRank});
  add("attn_q_b.weight", {kQueryRank, o.heads * o.head_dim});
  add("attn_kv.weight", {o.width, o.head_dim});
  add("attn_kv_a_norm.weight", {o.head_dim});
  add("attn_sinks.weight", {o.heads});
  add("attn_output_a.weight", {o.heads * o.head_dim / kGroups, kGroups * kOutputRank});
  add("attn_output_b.weight", {kGroups * kOutputRank, o.width});
  const int64_t pool = kPools[layer];
  if (pool == 0) return;
  const bool overlap = layer + 1 == std::size(kPools);
  AddCompressor("attn_compressor", o, o.head_dim, pool, (overlap ? 2 : 1) * o.head_dim, add);
  if (!overlap) return;
  AddCompressor("indexer_compressor", o, o.index_dim, pool, 2 * o.index_dim, add);
  add("indexer.attn_q_b.weight", {kQueryRank, o.index_heads * o.index_dim});
  add("indexer.proj.weight", {o.width, o.index_heads});
}

}  // namespace

void AddCompressed(const TinyOptions& o, TinyModel& model, const AddTensor& add) {
  AddKeys(o, model);
  AddMixing("output_hc", o, 1, model, add);
  for (size_t i = 0; i < std::size(kPools); ++i) {
    const AddTensor in_layer = [&](const std::string& name, std::vector<int64_t> dims) {
      add(fmt::format("blk.{}.{}", i, name), std::move(dims));
    };
    in_layer("attn_norm.weight", {o.width});
    in_layer("ffn_norm.weight", {o.width});
    AddMixing("hc_attn", o, 3, model, in_layer);
    AddMixing("hc_ffn", o, 3, model, in_layer);
    AddAttention(o, i, in_layer);
    AddExperts(o, in_layer);
    if (static_cast<int64_t>(i) >= kHashed) continue;
    model.Remove(fmt::format("blk.{}.exp_probs_b.bias", i));
    in_layer("ffn_gate_tid2eid.weight", {o.experts.used, o.vocab});
    // Experts, and where there are few low ones, so that there are some whatever is done to them.
    std::vector<float>& ids = model.tensors.back().values;
    const auto used = static_cast<size_t>(o.experts.used);
    for (size_t j = 0; j < ids.size(); ++j) {
      const size_t slot = j % used, token = j / used;
      ids[j] = static_cast<float>(used > 2 ? slot : slot == 1 ? 2 : token % 2);
    }
  }
}

}  // namespace lockstep::test
