// Mixture of experts as a piece of a layer: router, choice, experts, experts that every token sees.
#pragma once

#include <optional>
#include <string_view>

#include "models/decoder.h"

namespace lockstep {

struct MoeSpec {
  int64_t experts = 0;  // e
  int64_t width = 0;    // f of one expert
  MoeSettings ffn;      // biases: found by the file's tensors
  // How scores [t, e] follow from the router. The soft-max over the chosen has them as they come.
  enum class Scoring { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus };
  Scoring scoring = Scoring::kSoftmax;
  float router_cap = 0;           // soft cap of what the router gives, 0: none
  bool chosen_by_token = false;   // experts are a row of ffn_gate_tid2eid, whatever the scores
  bool choose_by_router = false;  // the choice sees what the router gives, not the scores
  TopExpertsSettings choice;      // exp_probs_b takes part where the file has it
  ExpertWeightsSettings weights;
  std::optional<FeedForwardSpec> shared;  // ffn_*_shexp, which every token sees
  bool shared_gate = false;               // times sigmoid(ffn_gate_inp_shexp x)
  float scale = 1;                        // of the sum of all
};

// What an architecture means by keys that its files leave out.
struct MoeDefaults {
  MoeSpec::Scoring scoring = MoeSpec::Scoring::kSoftmax;
  bool normalize = false;  // the weights of the chosen add up to the scale
  float sum_offset = 0;    // ExpertWeightsSettings
  float sum_floor = 0;
};

// Reads llama.cpp's keys: expert_count, expert_used_count, expert_feed_forward_length, expert_group_count, expert_gating_func ...
MoeSpec ReadMoeSpec(const ModelSource& source, const MoeDefaults& defaults);
// Shared experts as wide as expert_shared_feed_forward_length, or as expert_shared_count experts; none where neither is there.
std::optional<FeedForwardSpec> ReadSharedExperts(const ModelSource& source, const MoeSpec& spec);

// x: [t, k], normed; result [t, k]. Tensor names are llama.cpp's; gate and up may be fused (ffn_gate_up_exps), and each expert may have
// tensors of its own (ffn_gate.0).
ValueId BuildMoe(Parts& parts, ValueId x, const MoeSpec& spec);
// The same with another view of the stream for the router.
ValueId BuildMoe(Parts& parts, ValueId x, ValueId routed, const MoeSpec& spec);

// Whether a layer has experts: those after leading_dense_block_count, each interleave_moe_layer_step-th, but for layers that have a
// feed-forward and no router.
bool HasExperts(const ModelSource& source, size_t layer);
// Gives these layers experts.
void SetExperts(const ModelSource& source, const MoeSpec& moe, DecoderSpec& spec);

}  // namespace lockstep
