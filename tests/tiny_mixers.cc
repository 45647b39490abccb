#include "tiny_mixers.h"

#include <algorithm>

#include "tiny_gated_streams.h"

namespace lockstep::test {
namespace {

using Mixer = TinyOptions::Mixer;

// Two key heads, four value heads; groups and heads of a state space alike.
constexpr int64_t kKeyHeads = 2, kValueHeads = 4, kStateWidth = 16, kTaps = 4, kStreams = 2;
constexpr int64_t kKeys = kKeyHeads * kStateWidth, kValues = kValueHeads * kStateWidth;

struct MixerRow {
  std::string_view architecture;
  Mixer mixer;
  bool qk_norm, gated_queries, experts, shared_gate;
};
constexpr MixerRow kRows[] = {
    {"granitehybrid", Mixer::kMamba, false, false, true, false},
    {"lfm2", Mixer::kShortConv, true, false, false, false},
    {"qwen35", Mixer::kDeltaNet, true, true, false, false},
    {"qwen35moe", Mixer::kDeltaNet, true, true, true, true},
    {"qwen3next", Mixer::kWovenDeltaNet, true, true, true, true},
};

void AddShortConv(int64_t width, const AddTensor& add) {
  add("shortconv.in_proj.weight", {width, 3 * width});
  add("shortconv.conv.weight", {kTaps, width});
  add("shortconv.out_proj.weight", {width, width});
}

void AddDeltaNet(int64_t width, bool woven, const AddTensor& add) {
  if (woven) {
    add("ssm_in.weight", {width, 2 * kKeys + 2 * kValues});
    add("ssm_ba.weight", {width, 2 * kValueHeads});
  } else {
    add("attn_qkv.weight", {width, 2 * kKeys + kValues});
    add("attn_gate.weight", {width, kValues});
    add("ssm_beta.weight", {width, kValueHeads});
    add("ssm_alpha.weight", {width, kValueHeads});
  }
  add("ssm_conv1d.weight", {kTaps, 2 * kKeys + kValues});
  add("ssm_dt.bias", {kValueHeads});
  add("ssm_a", {kValueHeads});
  add("ssm_norm.weight", {kStateWidth});
  add("ssm_out.weight", {kValues, width});
}

void AddMamba(int64_t width, const AddTensor& add) {
  const int64_t channels = kValues + 2 * kKeys;
  add("ssm_in.weight", {width, kValues + channels + kValueHeads});
  add("ssm_conv1d.weight", {kTaps, channels});
  add("ssm_conv1d.bias", {channels});
  add("ssm_dt.bias", {kValueHeads});
  add("ssm_a", {1, kValueHeads});
  add("ssm_d", {1, kValueHeads});
  add("ssm_norm.weight", {kValues / kKeyHeads, kKeyHeads});
  add("ssm_out.weight", {kValues, width});
}

void AddKimiDelta(const TinyOptions& o, const AddTensor& add) {
  const int64_t rows = o.heads * kStateWidth;
  for (const std::string name : {"q", "k", "v"}) {
    add("attn_" + name + ".weight", {o.width, rows});
    add("ssm_conv1d_" + name + ".weight", {kTaps, rows});
  }
  for (const std::string gate : {"ssm_f", "ssm_g"}) {
    add(gate + "_a.weight", {o.width, kStateWidth});
    add(gate + "_b.weight", {kStateWidth, rows});
  }
  add("ssm_beta.weight", {o.width, o.heads});
  add("ssm_dt.bias", {rows});
  add("ssm_a", {o.heads});
  add("ssm_norm.weight", {kStateWidth});
  add("attn_output.weight", {rows, o.width});
}

void SetKimiDelta(TinyOptions& options) {
  options.mixer = Mixer::kKimiDelta;
  options.kv_heads = 1;
  options.head_dim = 32;
  options.q_rank = 32, options.kv_rank = 32, options.dv = 16;
  options.index_heads = 8, options.index_dim = 32, options.index_top = 8, options.index_pool = 4;
  options.experts.count = 6;
  options.experts.shared = 32;
  options.experts.dense_layers = 1;
  options.experts.correction = true;
}

// Every other layer has no attention.
void AddKeyHeads(const TinyOptions& options, TinyModel& model) {
  std::vector<int32_t> kv_heads;
  for (int64_t i = 0; i < options.layers; ++i)
    kv_heads.push_back(i % 2 == 0 ? 0 : static_cast<int32_t>(options.kv_heads));
  model.key("attention.head_count_kv") = kv_heads;
}

void AddKimiDeltaKeys(const TinyOptions& options, TinyModel& model) {
  AddKeyHeads(options, model);
  model.key("kda.head_dim") = static_cast<uint32_t>(kStateWidth);
  model.key("kda.gate_lower_bound") = -5.f;
  model.key("ssm.conv_kernel") = static_cast<uint32_t>(kTaps);
  model.key("hyper_connection.count") = static_cast<uint32_t>(kStreams);
  model.key("hyper_connection.sinkhorn_iterations") = uint32_t{3};
  model.key("hyper_connection.epsilon") = 1e-3f;
  model.key("swiglu_clamp_exp") = 1.5f;
}

}  // namespace

bool SetMixer(TinyOptions& options) {
  if (options.architecture == "glm5-next") {
    SetKimiDelta(options);
    return true;
  }
  if (options.architecture == "qwen4exp") {
    SetGatedStreams(options);
    return true;
  }
  const auto* row = std::ranges::find(kRows, options.architecture, &MixerRow::architecture);
  if (row == std::end(kRows)) return false;
  options.mixer = row->mixer;
  options.qk_norm = row->qk_norm;
  options.gated_queries = row->gated_queries;
  if (row->experts) {
    options.experts.count = 6;
    options.experts.shared = 64;
    options.experts.shared_gate = row->shared_gate;
  }
  return true;
}

void AddMixerKeys(const TinyOptions& options, TinyModel& model) {
  if (options.mixer == Mixer::kAttention || options.mixer == Mixer::kCompressed ||
      options.mixer == Mixer::kGatedStreams) {
    return;
  }
  if (options.mixer == Mixer::kKimiDelta) return AddKimiDeltaKeys(options, model);
  auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
  if (options.mixer == Mixer::kShortConv || options.mixer == Mixer::kMamba) {
    AddKeyHeads(options, model);
  } else {
    model.key("full_attention_interval") = uint32_t{2};
  }
  if (options.mixer == Mixer::kShortConv) {
    model.key("shortconv.l_cache") = count(kTaps);
    return;
  }
  model.key("ssm.group_count") = count(kKeyHeads);
  model.key("ssm.time_step_rank") = count(kValueHeads);
  model.key("ssm.state_size") = count(kStateWidth);
  model.key("ssm.inner_size") = count(kValues);
  model.key("ssm.conv_kernel") = count(kTaps);
}

void AddMixer(const TinyOptions& options, const AddTensor& add) {
  switch (options.mixer) {
    case Mixer::kAttention:
    case Mixer::kCompressed:
    case Mixer::kGatedStreams:
      return;
    case Mixer::kShortConv:
      return AddShortConv(options.width, add);
    case Mixer::kDeltaNet:
    case Mixer::kWovenDeltaNet:
      return AddDeltaNet(options.width, options.mixer == Mixer::kWovenDeltaNet, add);
    case Mixer::kMamba:
      return AddMamba(options.width, add);
    case Mixer::kKimiDelta:
      return AddKimiDelta(options, add);
  }
}

void AddStreams(const TinyOptions& options, const AddTensor& add) {
  if (options.mixer != Mixer::kKimiDelta) return;
  constexpr int64_t kWeights = kStreams * (2 + kStreams);
  for (const std::string branch : {"hc_attn", "hc_ffn"}) {
    add(branch + "_fn.weight", {kStreams * options.width, kWeights});
    add(branch + "_base.weight", {kWeights});
    add(branch + "_scale.weight", {3});
  }
}

}  // namespace lockstep::test
