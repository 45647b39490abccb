#include "tiny_gated_streams.h"

#include <fmt/format.h>

#include "tiny_mixers.h"

namespace lockstep::test {
namespace {

constexpr int64_t kStreams = 2, kLowRank = 24, kTableRows = 64, kTableWidth = 16, kTaps = 3;
constexpr int32_t kSizes[] = {11, 13, 17, 19}, kOffsets[] = {0, 11, 24, 41};
constexpr int64_t kNgramLayer = 0;

TinyOptions DeltaOptions(TinyOptions options) {
  options.mixer = TinyOptions::Mixer::kDeltaNet;
  return options;
}

void AddKeys(const TinyOptions& o, TinyModel& model) {
  AddMixerKeys(DeltaOptions(o), model);
  const std::pair<const char*, int64_t> counts[] = {
      {"hyper_connection.count", kStreams},
      {"hyper_connection.low_rank", kLowRank},
      {"attention.indexer.head_count", o.index_heads},
      {"attention.indexer.key_length", o.index_dim},
      {"attention.indexer.top_k", o.index_top},
      {"ple.ngram_size", 3},
      {"ple.heads_per_ngram", 2},
      {"ple.conv_kernel", kTaps},
      {"embedding_length_per_layer_input", kTableWidth}};
  for (const auto& [name, count] : counts) model.key(name) = static_cast<uint32_t>(count);
  std::vector<int32_t> pools;
  for (int64_t i = 0; i < o.layers; ++i)
    pools.push_back(i % 2 == 0 ? 0 : static_cast<int32_t>(o.index_pool));
  model.key("attention.compress_ratios") = pools;
  model.key("ple.layers") = std::vector<int32_t>{kNgramLayer};
  model.key("ple.layer_multipliers") = std::vector<int32_t>{1000003, 2000029, 3000017};
  model.key("ple.head_vocab_sizes") = std::vector<int32_t>(std::begin(kSizes), std::end(kSizes));
  model.key("ple.head_offsets") = std::vector<int32_t>(std::begin(kOffsets), std::end(kOffsets));
}

void AddMix(const std::string& name, const TinyOptions& o, const AddTensor& add) {
  add(name + "_norm.weight", {kStreams * o.width});
  add(name + "_down.weight", {kStreams * o.width, kLowRank});
  add(name + "_up.weight", {kLowRank, kStreams * o.width});
}

void AddNgrams(const TinyOptions& o, const AddTensor& add) {
  const int64_t width = kTableWidth * static_cast<int64_t>(std::size(kSizes)),
                all = kStreams * o.width;
  add("ple_key.weight", {width, all});
  add("ple_value.weight", {width, o.width});
  for (const char* norm : {"key", "query", "conv"})
    add(fmt::format("ple_norm_{}.weight", norm), {all});
  add("ple_conv1d.weight", {kTaps, all});
}

void AddAttention(const TinyOptions& o, const AddTensor& add) {
  const int64_t q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  add("attn_q.weight", {o.width, 2 * q});
  add("attn_k.weight", {o.width, kv});
  add("attn_v.weight", {o.width, kv});
  add("attn_q_norm.weight", {o.head_dim});
  add("attn_k_norm.weight", {o.head_dim});
  add("attn_output.weight", {q, o.width});
  add("indexer.q_proj.weight", {o.width, o.index_heads * o.index_dim});
  add("indexer.k_proj.weight", {o.width, o.index_dim});
  add("indexer.q_norm.weight", {o.index_dim});
  add("indexer.k_norm.weight", {o.index_dim});
}

}  // namespace

void SetGatedStreams(TinyOptions& options) {
  options.mixer = TinyOptions::Mixer::kGatedStreams;
  options.index_heads = 3, options.index_dim = 32, options.index_top = 12, options.index_pool = 4;
  options.experts.count = 6;
  options.experts.shared = 64;
  options.experts.shared_gate = true;
}

void AddGatedStreams(const TinyOptions& o, TinyModel& model, const AddTensor& add) {
  AddKeys(o, model);
  model.Remove("output_norm.weight");
  add("per_layer_token_embd.weight", {kTableWidth, kTableRows});
  AddMix("output_hc", o, add);
  for (int64_t i = 0; i < o.layers; ++i) {
    const AddTensor in_layer = [&](const std::string& name, std::vector<int64_t> dims) {
      add(fmt::format("blk.{}.{}", i, name), std::move(dims));
    };
    for (const std::string branch : {"hc_attn", "hc_ffn"}) {
      AddMix(branch, o, in_layer);
      in_layer(branch + "_inject.weight", {kStreams * o.width, kStreams});
    }
    if (i == kNgramLayer) AddNgrams(o, in_layer);
    if (i % 2 == 0) {
      AddMixer(DeltaOptions(o), in_layer);
    } else {
      AddAttention(o, in_layer);
    }
    AddExperts(o, in_layer);
  }
}

}  // namespace lockstep::test
