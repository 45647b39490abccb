#include "models/moe.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "ops/root.h"

namespace lockstep {
namespace {

// Scores as the choice and the weights see them.
struct Scores {
  ValueId choice, weights;
};

Scores BuildScores(Parts& parts, ValueId x, const MoeSpec& spec) {
  const Axis e{'e', spec.experts, 1};
  ValueId router = parts.Project("router", x, "ffn_gate_inp", {e});
  if (spec.router_cap != 0)
    router = parts.Apply("router_capped", MakeSoftCap(spec.router_cap), {router});
  ValueId scores = router;
  if (spec.scoring == MoeSpec::Scoring::kSoftmax)
    scores = parts.Apply("scores", MakeSoftmax(), {router});
  if (spec.scoring == MoeSpec::Scoring::kSigmoid)
    scores = parts.Apply("scores", MakeActivate(Activation::kSigmoid), {router});
  if (spec.scoring == MoeSpec::Scoring::kSqrtSoftplus) {
    const ValueId positive =
        parts.Apply("router_positive", MakeActivate(Activation::kSoftplus), {router});
    scores = parts.Apply("scores", MakeRoot(), {positive});
  }
  return {spec.choose_by_router ? router : scores, scores};
}

// The experts of each token, [t, u].
ValueId Chosen(Parts& parts, ValueId scores, const MoeSpec& spec) {
  GraphBuilder& build = parts.build();
  if (spec.chosen_by_token) {
    const Axis u{'u', spec.choice.used, spec.choice.used};
    return parts.Apply("experts", MakeEmbed(1), {build.tokens(), build.Weight({parts.Tensor("ffn_gate_tid2eid")}, {parts.Vocab(), u})});
  }
  std::vector<ValueId> choice = {scores};
  const bool biased = parts.Has("exp_probs_b", "bias");
  if (biased) choice.push_back(build.Weight({parts.Tensor("exp_probs_b", "bias")}, {Axis{'e', spec.experts, 1}}));
  return parts.Apply("experts", MakeTopExperts(spec.choice, biased), choice);
}

// gate, up and down, or up and down, as the file holds them.
std::vector<ValueId> ExpertWeights(Parts& parts, const MoeSpec& spec) {
  const Axis e{'e', spec.experts, 1}, f{'f', spec.width, 1};
  const bool stacked = parts.Has("ffn_down_exps") || !parts.Has("ffn_down.0");
  const bool fused = parts.Has("ffn_gate_up_exps");
  auto weight = [&](std::string_view name, const Shape& shape, int64_t fused_row) {
    if (fused_row >= 0 && fused)
      return parts.build().Weight({parts.Tensor("ffn_gate_up_exps"), fused_row, 2 * spec.width},
                                  shape);
    return parts.build().Weight({parts.Tensor(fmt::format("{}{}", name, stacked ? "_exps" : ".*"))},
                                shape);
  };
  std::vector<ValueId> weights;
  if (spec.ffn.gated) weights.push_back(weight("ffn_gate", {e, f, parts.Width()}, 0));
  weights.push_back(weight("ffn_up", {e, f, parts.Width()}, spec.width));
  weights.push_back(weight("ffn_down", {e, parts.Width(), f}, -1));
  return weights;
}

std::vector<ValueId> ExpertBiases(Parts& parts, const MoeSpec& spec) {
  const Axis e{'e', spec.experts, 1}, f{'f', spec.width, 1};
  auto bias = [&](std::string_view name, const Shape& shape) {
    return parts.build().Weight({parts.Tensor(name, "bias")}, shape);
  };
  std::vector<ValueId> biases;
  if (spec.ffn.gated) biases.push_back(bias("ffn_gate_exps", {e, f}));
  biases.push_back(bias("ffn_up_exps", {e, f}));
  biases.push_back(bias("ffn_down_exps", {e, parts.Width()}));
  return biases;
}

ValueId BuildShared(Parts& parts, ValueId x, const MoeSpec& spec) {
  const ValueId y = BuildFeedForward(parts, x, *spec.shared);
  if (!spec.shared_gate) return y;
  ValueId gate = parts.Project("shared_gate", x, "ffn_gate_inp_shexp", {});
  gate = parts.Apply("shared_gate_active", MakeActivate(Activation::kSigmoid), {gate});
  return parts.Apply("shared", MakeMulEach(), {y, gate});
}

}  // namespace

ValueId BuildMoe(Parts& parts, ValueId x, const MoeSpec& spec) { return BuildMoe(parts, x, x, spec); }

ValueId BuildMoe(Parts& parts, ValueId x, ValueId routed, const MoeSpec& spec) {
  const Scores scores = BuildScores(parts, routed, spec);
  const ValueId ids = Chosen(parts, scores.choice, spec);
  std::vector<ValueId> weighed = {scores.weights, ids};
  const bool scaled = parts.Has("ffn_down_exps", "scale");
  if (scaled)
    weighed.push_back(
        parts.build().Weight({parts.Tensor("ffn_down_exps", "scale")}, {Axis{'e', spec.experts, 1}}));
  const ValueId weights =
      parts.Apply("expert_weights", MakeExpertWeights(spec.weights, scaled), weighed);

  MoeSettings ffn = spec.ffn;
  ffn.biases = parts.Has("ffn_down_exps", "bias");
  std::vector<ValueId> operands = {x, ids, weights};
  std::ranges::copy(ExpertWeights(parts, spec), std::back_inserter(operands));
  if (ffn.biases) std::ranges::copy(ExpertBiases(parts, spec), std::back_inserter(operands));
  ValueId y = parts.Apply("moe", MakeMoeFfn(ffn), operands);
  if (spec.shared) y = parts.Apply("moe_and_shared", MakeAdd(), {y, BuildShared(parts, x, spec)});
  return parts.Scale("moe_scaled", y, spec.scale);
}

MoeSpec ReadMoeSpec(const ModelSource& source, const MoeDefaults& defaults) {
  using Scoring = MoeSpec::Scoring;
  MoeSpec spec;
  spec.experts = source.Count("expert_count");
  spec.choice.used = source.Count("expert_used_count");
  if (spec.experts > kMaxLeaves || spec.choice.used > std::min(spec.experts, kMostUsedExperts)) {
    source.Refuse("expert_used_count",
                  fmt::format("expected at most {} of at most {} experts, found {} of {}",
                              kMostUsedExperts, kMaxLeaves, spec.choice.used, spec.experts));
  }
  spec.choice.groups = source.OptionalCount("expert_group_count").value_or(1);
  spec.choice.used_groups =
      source.OptionalCount("expert_group_used_count").value_or(spec.choice.groups);
  spec.choice.groups_by_best_two = true;
  const int64_t groups = spec.choice.groups, used_groups = spec.choice.used_groups;
  if (groups > kMostExpertGroups || spec.experts % groups != 0 || used_groups > groups ||
      spec.experts / groups * used_groups < spec.choice.used) {
    source.Refuse(
        "expert_group_count",
        fmt::format("expected at most {} groups that share {} experts, {} of them enough for {} "
                    "experts, found {}",
                    kMostExpertGroups, spec.experts, used_groups, spec.choice.used, groups));
  }
  // Mixtral's experts are as wide as the feed-forward they stand for.
  spec.width = source.OptionalCount("expert_feed_forward_length").value_or(0);
  if (spec.width == 0)
    spec.width = source.CountPerLayer("feed_forward_length", source.Count("block_count")).back();
  spec.scoring = defaults.scoring;
  static constexpr std::pair<int64_t, Scoring> kScorings[] = {{1, Scoring::kSoftmax},
                                                              {2, Scoring::kSigmoid},
                                                              {3, Scoring::kSoftmaxOfChosen},
                                                              {4, Scoring::kSqrtSoftplus}};
  if (const int64_t function = source.OptionalCount("expert_gating_func", 0).value_or(0);
      function != 0) {
    const auto* row = std::ranges::find(kScorings, function, &std::pair<int64_t, Scoring>::first);
    if (row == std::end(kScorings))
      source.Refuse("expert_gating_func", fmt::format("expected 1 to 4, found {}", function));
    spec.scoring = row->second;
  }
  using Normalize = ExpertWeightsSettings::Normalize;
  spec.weights.normalize =
      source.BoolOr("expert_weights_norm", defaults.normalize) ? Normalize::kSum : Normalize::kNone;
  if (spec.scoring == Scoring::kSoftmaxOfChosen) spec.weights.normalize = Normalize::kSoftmax;
  spec.weights.sum_offset = defaults.sum_offset;
  spec.weights.sum_floor = defaults.sum_floor;
  spec.weights.scale = source.FloatOr("expert_weights_scale", 1);
  // Files write 0 for none.
  if (spec.weights.scale == 0) spec.weights.scale = 1;
  spec.router_cap = source.FloatOr("router_logit_softcapping", 0);
  return spec;
}

std::optional<FeedForwardSpec> ReadSharedExperts(const ModelSource& source, const MoeSpec& spec) {
  FeedForwardSpec shared;
  shared.suffix = "_shexp";
  shared.width = source.OptionalCount("expert_shared_feed_forward_length", 0).value_or(0);
  if (shared.width == 0)
    shared.width = spec.width * source.OptionalCount("expert_shared_count", 0).value_or(0);
  return shared.width == 0 ? std::nullopt : std::optional(shared);
}

bool HasExperts(const ModelSource& source, size_t layer) {
  const auto i = static_cast<int64_t>(layer);
  if (i < source.OptionalCount("leading_dense_block_count", 0).value_or(0)) return false;
  if ((i + 1) %
          std::max<int64_t>(source.OptionalCount("interleave_moe_layer_step", 0).value_or(1), 1) !=
      0)
    return false;
  auto has = [&](std::string_view name) {
    return source.HasTensor(fmt::format("blk.{}.{}.weight", layer, name));
  };
  return has("ffn_gate_inp") || !has("ffn_gate");
}

void SetExperts(const ModelSource& source, const MoeSpec& moe, DecoderSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!HasExperts(source, i)) continue;
    spec.layers[i].channel_mixer = [moe](Parts& parts, ValueId x) {
      return BuildMoe(parts, x, moe);
    };
  }
}

}  // namespace lockstep
