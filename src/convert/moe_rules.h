// What checkpoints with experts share: keys in every spelling, tables of tensors, and the next-token blocks behind the layers.
#pragma once

#include "convert/converters.h"

namespace lockstep {

// Whether a layer has experts, by whichever key says so: mlp_layer_types, first_k_dense_replace, moe_layers_enum, moe_layer_start_index
// .. moe_layer_end_index, mlp_only_layers with decoder_sparse_step; all layers where none does. Next-token blocks have experts where the
// key does not list them.
bool IsSparse(const Place& place);
bool IsDense(const Place& place);

// expert_count, expert_used_count, widths, groups, scale and normalisation of weights, leading_dense_block_count: those that the
// checkpoint states, and of shared experts the width, or their number where only that is known.
void SetMoeKeys(const Config& config, Keys& keys);

// Names of the gate, up and down of each expert, which the file has stacked; and of all experts', where checkpoints have them stacked already:
// [e, gate rows then up rows, k] and [e, n, f].
struct ExpertNames {
  std::string_view gate, up, down;  // "mlp.experts.{e}.gate_proj.weight"
  std::string_view gates_and_ups = "", downs = "";
};
inline constexpr ExpertNames kMlpExperts = {"mlp.experts.{e}.gate_proj.weight",
                                            "mlp.experts.{e}.up_proj.weight",
                                            "mlp.experts.{e}.down_proj.weight",
                                            "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
inline constexpr ExpertNames kMixtralExperts = {"block_sparse_moe.experts.{e}.w1.weight",
                                                "block_sparse_moe.experts.{e}.w3.weight",
                                                "block_sparse_moe.experts.{e}.w2.weight"};
std::vector<TensorRule> ExpertTensors(const ExpertNames& names);
// The router, "mlp.gate.weight", and the correction of its choice, empty: none.
std::vector<TensorRule> RouterTensors(std::string_view router, std::string_view correction = {});
// Shared experts: "mlp.shared_expert." and its gate, up and down.
std::vector<TensorRule> SharedExpertTensors(std::string_view gate, std::string_view up,
                                            std::string_view down);
// mlp.{gate,up,down}_proj of the layers that have no experts.
std::vector<TensorRule> DenseLayerTensors();

// Next-token blocks stand behind the layers (DeepSeek-V3, arXiv 2412.19437): the number of both.
int64_t BlocksWithNextToken(const Config& config);
bool IsNextTokenBlock(const Place& place);
// block_count and nextn_predict_layers.
void SetNextTokenKeys(const Config& config, Keys& keys);
// eh_proj, enorm, hnorm and shared_head of such a block, in checkpoints that keep it as one more layer. `norms`: what is done to norms.
std::vector<TensorRule> NextTokenTensors(Values (*norms)(const Values&, const Place&) = nullptr);
// The same where such blocks are "mtp.layers.N." and what they share "mtp.": names of layers, and fc, pre_fc_norm_embedding, pre_fc_norm_hidden
// and norm, the norms through `norm` (null: as they are).
std::string MtpLayerName(const Config& config, int64_t layer);
void EmitMtpTensors(Recipe& recipe, Values (*norm)(const Values& values, const Place& place));
// attention.sliding_window and which layers have it, next-token blocks included: they have one or not as `next_token` says, where
// layer_types does not list them.
enum class NextToken { kWindowed, kSeesAll };
void SetWindowKeysOfBlocks(const Config& config, NextToken next_token, Keys& keys);

}  // namespace lockstep
