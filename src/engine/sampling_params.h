// What a request asks of the sampler. Names, defaults and order are llama.cpp's (common/common.h,
// common/sampling.cpp), so that requests and command lines written for it keep their meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace lockstep {

enum class SamplerKind : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
  kAdaptiveP,
};
inline constexpr int kSamplerKinds = 10;

// Added to a token's logit before everything else. The bias is clamped to [-100, 100]; -Inf forbids
// the token.
struct LogitBias {
  int64_t token;
  float bias;
};

struct SamplingParams {
  int64_t seed = -1;  // negative, or 4294967295 as llama.cpp writes -1: one from the system

  float temp = 0.8f;  // <= 0 is greedy whatever the other fields say
  float dynatemp_range = 0;
  float dynatemp_exponent = 1;

  int32_t top_k = 40;  // <= 0: off
  float top_p = 0.95f;
  float min_p = 0.05f;
  float typ_p = 1;
  float top_n_sigma = -1;  // <= 0: off
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;  // > 0.5: off
  int32_t min_keep = 0;        // what top_p, min_p, typ_p and xtc leave at least

  int32_t penalty_last_n = 64;  // tokens of the history to look at; -1: all
  float penalty_repeat = 1;
  float penalty_freq = 0;
  float penalty_present = 0;

  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;    // < 1: off
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = 64;  // -1: all
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  int32_t mirostat = 0;  // 1, 2: replaces the chain by logit bias, temperature and mirostat
  float mirostat_tau = 5;
  float mirostat_eta = 0.1f;

  float adaptive_target = -1;  // < 0: off
  float adaptive_decay = 0.9f;

  std::vector<SamplerKind> samplers = {
      SamplerKind::kPenalties, SamplerKind::kDry,      SamplerKind::kTopNSigma,
      SamplerKind::kTopK,      SamplerKind::kTypicalP, SamplerKind::kTopP,
      SamplerKind::kMinP,      SamplerKind::kXtc,      SamplerKind::kTemperature};
  std::vector<LogitBias> logit_bias;  // several for one token add up

  bool logprob = true;  // TokenDraw::logprob, which costs a pass of exp over the vocabulary
  int32_t n_probs = 0;  // TokenDraw::top; implies `logprob`

  // The first field that a model with `vocab_size` tokens cannot be sampled with: Refused with the
  // field's request name, what is allowed and what was found. Nothing where all are acceptable.
  std::optional<Error> Validate(int64_t vocab_size) const;
};

// A numeric field: one row drives validation, request parsing and the command line.
struct SamplingField {
  std::string_view name;  // in requests: "repeat_penalty"
  std::string_view flag;  // on the command line: "--repeat-penalty"; empty where there is none
  std::variant<float SamplingParams::*, int32_t SamplingParams::*> member;
  double min;  // both inclusive
  double max;
};
std::span<const SamplingField> SamplingFields();

// "min_p;temperature", or one letter a sampler ("mt": llama.cpp's --sampler-seq). Text that is
// itself a name is read as that name. Duplicates, no samplers at all and empty names are allowed;
// Refused for a name or letter that is unknown and for more than 256 samplers.
Result<std::vector<SamplerKind>> ParseSamplerOrder(std::string_view text);

// One name: "top_p", or an alternative spelling of llama.cpp's such as "nucleus" or "top-p".
Result<SamplerKind> ParseSamplerName(std::string_view name);

// The name that ParseSamplerName() reads back.
std::string_view SamplerName(SamplerKind kind);

}  // namespace lockstep
