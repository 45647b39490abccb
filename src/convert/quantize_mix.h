// Mixes: which format each tensor of a quantised file gets. The names and the choices are
// llama.cpp's (llama_ftype and its quantiser), so that a file made here has the formats that its
// name promises.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/format.h"
#include "gguf/gguf_file.h"

namespace lockstep {

// In the order of the table in quantize_mix.cc.
enum class MixId : uint8_t {
  // clang-format off
  kF32, kF16, kBf16, kQ1_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kMxfp4Moe, kNvfp4, kTq1_0, kTq2_0,
  kQ2K, kQ2KS, kQ3KS, kQ3KM, kQ3KL, kQ4KS, kQ4KM, kQ5KS, kQ5KM, kQ6K,
  kIq1S, kIq1M, kIq2Xxs, kIq2Xs, kIq2S, kIq2M, kIq3Xxs, kIq3Xs, kIq3S, kIq3M, kIq4Nl, kIq4Xs,
  kCopy,  // nothing changes its format
  // clang-format on
};

struct Mix {
  MixId id;
  std::string_view name;    // "Q4_K_M"
  std::string_view format;  // of most tensors; empty for COPY
  uint32_t number;          // general.file_type
};

// The mix of this name in any case, of an alias ("Q4_K") or of a number ("15"); null where there is
// none.
const Mix* FindMix(std::string_view name);
// The same; Refused with all names where there is none.
const Mix& RequireMix(std::string_view name);

struct MixOptions {
  const Mix* mix = nullptr;
  bool has_imatrix = false;
  bool pure = false;             // the mix's own format for every tensor
  bool leave_output = false;     // output.weight as it is
  bool strict = false;           // no other format where rows do not fit
  std::string output_format;     // empty: by the mix
  std::string embedding_format;  // of token_embd.weight; empty: by the mix
  // Pattern (ECMAScript regular expression, found anywhere in a name) and format; the first that is
  // found counts.
  std::vector<std::pair<std::string, std::string>> overrides;
};

struct PlannedTensor {
  GgufTensor tensor;
  const Format* from = nullptr;
  const Format* to = nullptr;
  const Format* meant = nullptr;  // not `to` where rows do not fit its blocks
  bool needs_importance = false;  // of too little use without
};

// The formats of all tensors of a model, in the order given. Refused for patterns and formats that
// are none, and for rows that do not fit where the caller named the format or is strict.
std::vector<PlannedTensor> PlanFormats(std::span<const GgufTensor> tensors,
                                       const GgufMetadata& metadata, const MixOptions& options);

// A format that the quantiser can write. Refused naming `who` where there is none of that name.
const Format& FindTargetFormat(std::string_view name, std::string_view who);

}  // namespace lockstep
