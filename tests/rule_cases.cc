#include "rule_cases.h"

#include <cmath>

#include "gguf/gguf_writer.h"
#include "noise.h"
#include "ops/concat.h"
#include "ops/gathered_attention.h"
#include "ops/head_linear.h"
#include "ops/hyper_connections.h"
#include "ops/ngram.h"
#include "ops/pool_keys.h"
#include "ops/repeat.h"
#include "ops/root.h"
#include "ops/select_keys.h"

namespace lockstep::test {
namespace {

constexpr Axis G{'g', 4}, G1{'g', 1}, R{'r', 6}, D{'d', 16}, K{'k', 192}, N{'n', 40}, F{'f', 96},
    E{'e', 8}, L{'l', 3};
constexpr Axis Taps{'l', 4}, Past{'u', 3};

constexpr Axis V{'v', kBenchVocab};

// Attention over a cache that is filled first.
ValueId FilledCache(Bench& b, const Axis& g) {
  const ValueId cache = b.build().State("kv", g.size, D.size, D.size);
  b.build().Apply("append", MakeKvAppend(), {b.Input({g, D}), b.Input({g, D}), cache, cache + 1});
  return cache;
}
ValueId FilledKeys(Bench& b, int64_t width, int64_t values, int64_t pool = 1) {
  const ValueId cache = b.build().LatentState("keys", width, values, pool);
  b.build().Apply("append", MakeKvAppendKeys(), {b.Input({G1, {'d', width}}), cache});
  return cache;
}

ValueId Delta(Bench& b, const Axis& g, const Axis& r, bool tiled) {
  LinearAttentionSettings s;
  s.dk = D.size, s.dv = 8, s.tiled = tiled;
  const Axis dv{'n', 8}, &outer = tiled ? r : g, &inner = tiled ? g : r;
  const ValueId state = b.build().RecurrentState("state", {outer, inner, D, dv},
                                                 LinearAttentionLogRow(s, outer, inner));
  const ValueId decay = b.Apply(MakeActivate(Activation::kSigmoid), {b.Input({outer, inner})});
  const ValueId k = b.Apply(MakeL2Norm(1e-6f, D.size), {b.Input({g, D})});
  return b.Test(MakeLinearAttention(s), {b.Input({g, D}), k, b.Input({outer, inner, dv}), decay,
                                         b.Input({outer, inner}), state});
}

ValueId Conv(Bench& b, bool bias) {
  CausalConvSettings settings;
  settings.bias = bias;
  const ValueId state = b.build().RecurrentState("conv", {Past, F}, {F});
  std::vector<ValueId> inputs{b.Input({F}), b.Weight({F, Taps})};
  if (bias) inputs.push_back(b.Weight({F}));
  inputs.push_back(state);
  return b.Test(MakeCausalConv(settings), inputs);
}

ValueId Moe(Bench& b, bool gated, bool biases) {
  const ValueId scores = b.Apply(MakeSoftmax(), {b.Input({E})});
  const ValueId ids = b.Apply(MakeTopExperts({.used = 3}, false), {scores});
  const ValueId weights = b.Apply(MakeExpertWeights({}, false), {scores, ids});
  MoeSettings settings;
  settings.gated = gated, settings.biases = biases;
  std::vector<ValueId> inputs{b.Input({{'k', 32}}), ids, weights};
  const Axis k{'k', 32};
  if (gated) inputs.push_back(b.Weight({E, F, k}));
  inputs.push_back(b.Weight({E, F, k}));
  inputs.push_back(b.Weight({E, N, F}));
  if (biases && gated) inputs.push_back(b.Weight({E, F}));
  if (biases) inputs.push_back(b.Weight({E, F})), inputs.push_back(b.Weight({E, N}));
  return b.Test(MakeMoeFfn(settings), inputs);
}

ValueId Rope(Bench& b, RopePairing pairing) {
  RopeOptions options;
  options.n_rot = 8;
  const ValueId angles =
      b.Apply(MakeRopeAngles(std::make_shared<const RopeTable>(options)), {b.tokens()});
  return b.Test(MakeRope(pairing, 8, D.size, 4), {b.Input({G, D}), angles});
}

NgramSettings Ngrams() { return {{3, 5, 7}, {50, 60, 70, 80}, {0, 50, 110, 180}, 8}; }
ValueId Previous(Bench& b) { return b.build().RecurrentState("previous", {{'u', 2}}, {{'u', 1}}); }
constexpr HyperConnections kHyper{3, 1e-6f, 2, false};
constexpr Axis Streams{'n', 3}, Mixes{'u', 15};

const Case kCases[] = {
    {"MakeEmbed", "",
     [](Bench& b) {
       return b.Test(MakeEmbed(2), {b.tokens(), b.Weight({V, F})});
     }},
    {"MakeEmbedPart", "",
     [](Bench& b) {
       return b.Test(MakeEmbedPart(1, 1), {b.tokens(), b.Weight({V, L, F})});
     }},
    {"MakeLinear", "kn",
     [](Bench& b) {
       return b.Test(MakeLinear(1), {b.Input({K}), b.Weight({N, K})});
     }},
    {"MakeLinear", "gn",
     [](Bench& b) {
       return b.Test(MakeLinear(D.size), {b.Input({G, D}), b.Weight({N, G, D})});
     }},
    {"MakeLinear", "n",
     [](Bench& b) {
       return b.Test(MakeLinear(0), {b.Input({{'k', 32}}), b.Weight({N, F, {'k', 32}})});
     }},
    {"MakeRmsNorm", "g",
     [](Bench& b) {
       return b.Test(MakeRmsNorm({}), {b.Input({G, D}), b.Weight({D})});
     }},
    {"MakeRmsNorm", "",
     [](Bench& b) {
       return b.Test(MakeRmsNorm({.over = NormOver::kRow}), {b.Input({G, D}), b.Weight({G, D})});
     }},
    {"MakeRmsNorm", "g",
     [](Bench& b) {
       return b.Test(MakeRmsNorm({.weighted = false, .size = D.size}), {b.Input({G, D})});
     }},
    {"MakeGroupedRmsNorm", "g",
     [](Bench& b) {
       return b.Test(MakeGroupedRmsNorm(1e-5f, R.size * D.size),
                     {b.Input({G, R, D}), b.Weight({G, R, D})});
     }},
    {"MakeL2Norm", "g",
     [](Bench& b) {
       return b.Test(MakeL2Norm(1e-6f, D.size), {b.Input({G, D})});
     }},
    {"MakeLayerNorm", "g",
     [](Bench& b) {
       return b.Test(MakeLayerNorm({.biased = true}),
                     {b.Input({G, D}), b.Weight({D}), b.Weight({D})});
     }},
    {"MakeRopeAngles", "",
     [](Bench& b) {
       RopeOptions options;
       options.n_rot = 8;
       return b.Test(MakeRopeAngles(std::make_shared<const RopeTable>(options)), {b.tokens()});
     }},
    {"MakeRope", "g", [](Bench& b) { return Rope(b, RopePairing::kHalves); }},
    {"MakeRope", "g", [](Bench& b) { return Rope(b, RopePairing::kPairs); }},
    {"MakeKvAppend", "g",
     [](Bench& b) {
       const ValueId cache = FilledCache(b, G);
       return b.Apply(MakeAttention({}), {b.Input({G, R, D}), cache, cache + 1});
     }},
    {"MakeKvAppendKeys", "",
     [](Bench& b) {
       const ValueId cache = FilledKeys(b, D.size, 8);
       return b.Apply(MakeAttention({}), {b.Input({G1, R, D}), cache, cache + 1});
     }},
    {"MakeCausalConv", "f", [](Bench& b) { return Conv(b, false); }},
    {"MakeCausalConv", "f", [](Bench& b) { return Conv(b, true); }},
    {"MakeLinearAttention", "g", [](Bench& b) { return Delta(b, G, R, false); }},
    {"MakeLinearAttention", "r", [](Bench& b) { return Delta(b, G1, R, false); }},
    {"MakeLinearAttention", "r", [](Bench& b) { return Delta(b, G, R, true); }},
    {"MakeAdd", "g",
     [](Bench& b) {
       return b.Test(MakeAdd(), {b.Input({G, D}), b.Input({G, D})});
     }},
    {"MakeAddBias", "f",
     [](Bench& b) {
       return b.Test(MakeAddBias(), {b.Input({F}), b.Weight({F})});
     }},
    {"MakeMul", "f",
     [](Bench& b) {
       return b.Test(MakeMul(), {b.Input({F}), b.Input({F})});
     }},
    {"MakeMulColumns", "f",
     [](Bench& b) {
       return b.Test(MakeMulColumns(), {b.Input({F}), b.Weight({F})});
     }},
    {"MakeMulHeads", "g",
     [](Bench& b) {
       return b.Test(MakeMulHeads(), {b.Input({G, D}), b.Weight({G})});
     }},
    {"MakeMulEach", "g",
     [](Bench& b) {
       return b.Test(MakeMulEach(), {b.Input({G, D}), b.Input({G})});
     }},
    {"MakeDotGate", "g",
     [](Bench& b) {
       return b.Test(MakeDotGate(0.25f), {b.Input({G, D}), b.Input({G, D})});
     }},
    {"MakeScale", "f", [](Bench& b) { return b.Test(MakeScale(3), {b.Input({F})}); }},
    {"MakeHadamard", "g",
     [](Bench& b) {
       return b.Test(MakeHadamard(D.size), {b.Input({G, D})});
     }},
    {"MakePositionScale", "f",
     [](Bench& b) { return b.Test(MakePositionScale(0.5f, 8), {b.Input({F})}); }},
    {"MakeSoftCap", "f", [](Bench& b) { return b.Test(MakeSoftCap(2), {b.Input({F})}); }},
    {"MakeActivate", "f",
     [](Bench& b) { return b.Test(MakeActivate(Activation::kSilu), {b.Input({F})}); }},
    {"MakeActivateGated", "f",
     [](Bench& b) {
       return b.Test(MakeActivateGated({}), {b.Input({F}), b.Input({F})});
     }},
    {"MakeSoftmax", "", [](Bench& b) { return b.Test(MakeSoftmax(), {b.Input({E})}); }},
    {"MakeTopExperts", "",
     [](Bench& b) {
       return b.Test(MakeTopExperts({.used = 3}, true), {b.Input({E}), b.Weight({E})});
     }},
    {"MakeExpertWeights", "",
     [](Bench& b) {
       const ValueId scores = b.Input({E});
       return b.Test(
           MakeExpertWeights({}, true),
           {scores, b.Apply(MakeTopExperts({.used = 3}, false), {scores}), b.Weight({E})});
     }},
    {"MakeMoeFfn", "enf", [](Bench& b) { return Moe(b, true, false); }},
    {"MakeMoeFfn", "enf", [](Bench& b) { return Moe(b, true, true); }},
    {"MakeMoeFfn", "enf", [](Bench& b) { return Moe(b, false, true); }},
    {"MakeConcat", "g",
     [](Bench& b) {
       return b.Test(MakeConcat(D.size, 8), {b.Input({G, D}), b.Input({G, {'n', 8}})});
     }},
    {"MakeHeadLinear", "g",
     [](Bench& b) {
       return b.Test(MakeHeadLinear(), {b.Input({G, D}), b.Weight({G, N, D})});
     }},
    {"MakeHeadLinear", "n",
     [](Bench& b) {
       return b.Test(MakeHeadLinear(), {b.Input({G1, D}), b.Weight({G1, N, D})});
     }},
    {"MakeGroupedLinear", "",
     [](Bench& b) {
       return b.Test(MakeGroupedLinear(), {b.Input({{'k', 64}}), b.Weight({G, N, D})});
     }},
    {"MakeGroupedLinear", "n",
     [](Bench& b) {
       return b.Test(MakeGroupedLinear(), {b.Input({{'k', 16}}), b.Weight({G1, N, D})});
     }},
    {"MakeHyperWeights", "",
     [](Bench& b) {
       return b.Test(MakeHyperWeights(kHyper),
                     {b.Input({Mixes}), b.Weight({Mixes}), b.Weight({{'l', 3}})});
     }},
    {"MakeHyperCollapse", "k",
     [](Bench& b) {
       return b.Test(MakeHyperCollapse(kHyper), {b.Input({Streams, K}), b.Input({Mixes})});
     }},
    {"MakeHyperExpand", "k",
     [](Bench& b) {
       const ValueId streams = b.Input({Streams, K}), weights = b.Input({Mixes});
       return b.Apply(MakeHyperCollapse(kHyper),
                      {b.Test(MakeHyperExpand(kHyper), {streams, weights, b.Input({K})}), weights});
     }},
    {"MakeStreamMean", "k",
     [](Bench& b) {
       return b.Test(MakeStreamMean(3), {b.Input({Streams, K})});
     }},
    {"MakePreviousTokens", "",
     [](Bench& b) {
       return b.Test(MakePreviousTokens(2, 1), {b.tokens(), Previous(b)});
     }},
    {"MakeNgramEmbed", "",
     [](Bench& b) {
       const ValueId previous = b.Apply(MakePreviousTokens(2, 1), {b.tokens(), Previous(b)});
       return b.Test(MakeNgramEmbed(Ngrams()), {b.tokens(), previous, b.Weight({V, {'d', 8}})});
     }},
    {"MakeRepeat", "",
     [](Bench& b) {
       return b.Test(MakeRepeat(4, D.size), {b.Input({G1, D})});
     }},
    {"MakeRoot", "f",
     [](Bench& b) {
       return b.Test(MakeRoot(), {b.Apply(MakeActivate(Activation::kSoftplus), {b.Input({F})})});
     }},
    {"MakeAttention", "g",
     [](Bench& b) {
       const ValueId cache = FilledCache(b, G);
       return b.Test(MakeAttention({.sinks = true}),
                     {b.Input({G, R, D}), cache, cache + 1, b.Weight({G, R})});
     }},
    {"MakeAttention", "r",
     [](Bench& b) {
       const ValueId cache = FilledCache(b, G1);
       return b.Test(MakeAttention({.window = 9}), {b.Input({G1, R, D}), cache, cache + 1});
     }},
    {"MakeGatheredAttention", "g",
     [](Bench& b) {
       const ValueId cache = FilledCache(b, G);
       const GatheredAttentionSettings settings{.attention = {.window = 9}, .most_rows = 9};
       return b.Test(MakeGatheredAttention(settings), {b.Input({G, R, D}), cache, cache + 1});
     }},
    {"MakePoolKeys", "",
     [](Bench& b) {
       const PoolKeysSettings settings{.pool = 4, .d = 8};
       return b.Test(MakePoolKeys(settings),
                     {b.tokens(), FilledKeys(b, 16, 0), b.Weight({{'l', 4}, {'n', 8}})});
     }},
    {"MakeSelectKeys", "",
     [](Bench& b) {
       const SelectKeysSettings settings{.top_k = 4};
       return b.Test(MakeSelectKeys(settings),
                     {b.Input({R, D}), b.Input({R}), FilledKeys(b, D.size, 0)});
     }},
};

}  // namespace

std::span<const Case> RuleCases() { return kCases; }

}  // namespace lockstep::test
