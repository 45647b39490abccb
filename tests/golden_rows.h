// The reference checkpoints of ../shared/goldens: one row each, and what is expected of it.
#pragma once

#include <algorithm>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/safetensors.h"

namespace lockstep::test {

// Of a run in f32 with f32 K/V against one in f32 with another order of summation.
inline constexpr double kGoldenTolerance = 2e-5;

struct GoldenRow {
  std::string_view name;  // of the folder
  // Whether it converts and runs. A row that says no is tested to be refused: change it with the
  // architecture.
  bool supported = false;
  bool hidden = true;  // whether hidden.L is the residual stream (not where it has several)
  double tolerance = kGoldenTolerance;  // norm of the logits' difference over norm
  // Keys without the architecture that no logit of the prompt depends on, between blanks.
  std::string_view idle = "";
  bool next_token = false;  // whether there are mtp.logits and mtp.hidden, of the next-token block
};

// For test names and messages.
inline void PrintTo(const GoldenRow& row, std::ostream* out) { *out << row.name; }

// A width that checkpoints state and no layer has.
inline constexpr std::string_view kNoDenseLayer = "feed_forward_length";

inline constexpr GoldenRow kGoldenRows[] = {
    {"cohere2", true},
    {.name = "cohere2-moe", .supported = true, .idle = "expert_shared_count"},
    {.name = "deepseek2-lite", .supported = true, .idle = "rope.scaling.yarn_beta_fast"},
    {.name = "deepseek3",
     .supported = true,
     .idle = "rope.scaling.yarn_beta_fast",
     .next_token = true},
    {.name = "deepseek32", .supported = true, .next_token = true},
    {.name = "deepseek4",
     .supported = true,
     .hidden = false,
     .idle = "hyper_connection.sinkhorn_iterations"},
    {"ernie4.5-moe", true},
    {"flint", true},
    {"gemma2", true},
    {"gemma3", true},
    {"gemma4-dense", true, true, 4e-5},
    {"gemma4-dense-assistant"},
    {"gemma4-e2b", true, true, 4e-5},
    {"gemma4-moe", true, true, 4e-5},
    {.name = "glm-dsa", .supported = true, .next_token = true},
    {"glm4", true},
    {.name = "glm4-moe", .supported = true, .next_token = true},
    {"glm4-moe-lite", true},
    {"glm5-next", true, false, kGoldenTolerance, "hyper_connection.sinkhorn_iterations"},
    {"gpt-oss", true, true, kGoldenTolerance, kNoDenseLayer},
    {"granite", true},
    {"granite-hybrid", true, true, kGoldenTolerance,
     "feed_forward_length rope.freq_base rope.dimension_count"},
    {"hunyuan-dense", true},
    {"hunyuan-moe", true, true, kGoldenTolerance, kNoDenseLayer},
    {"laguna", true},
    {"lfm2", true},
    {"llama", true},
    {"llama-256", true},
    {"llama-bias", true},
    {.name = "mellum", .supported = true, .idle = kNoDenseLayer, .next_token = true},
    {"mimo2", true},
    {"mimo2-dflash"},
    {"minimax-m2", true, true, kGoldenTolerance, kNoDenseLayer},
    {"mistral3", true},
    {.name = "mistral4",
     .supported = true,
     .idle = "feed_forward_length rope.scaling.yarn_beta_fast"},
    {"mixtral", true},
    {"muse-glimmer", true},
    {"muse-glimmer-dflash"},
    {"olmo2", true},
    {"phi3", true},
    {"qwen2", true},
    {"qwen2-moe", true, true, kGoldenTolerance, kNoDenseLayer},
    {"qwen3", true},
    {"qwen3-moe", true},
    {"qwen3-moe-256", true, true, kGoldenTolerance, kNoDenseLayer},
    {.name = "qwen3-next", .supported = true, .idle = kNoDenseLayer, .next_token = true},
    {.name = "qwen3.5", .supported = true, .next_token = true},
    {.name = "qwen3.5-moe", .supported = true, .idle = kNoDenseLayer, .next_token = true},
    {"qwen4-exp", true, false, kGoldenTolerance, kNoDenseLayer},
    {"seed-oss", true},
    {"smollm3", true},
    {"step3.5", true},
};

// Families of the rows above in other sizes (one KV head, odd numbers of heads and experts, tied heads), and what else their files may be: kept
// here alone (data/variations.py).
inline constexpr GoldenRow kVariationRows[] = {
    {"cohere2-odd", true},
    {"deepseek3-odd", true},
    {"deepseek32-wide", true},
    {"deepseek4-far", true},
    {"gemma2-odd", true},
    {"gemma3-odd", true},
    {"gemma4-e2b-odd", true, true, 4e-5},
    {"gemma4-odd", true, true, 4e-5},
    {"glm4-moe-odd", true},
    {"glm5-next-soft", true},
    {"gpt-oss-odd", true},
    {"granite-hybrid-odd", true},
    {"laguna-odd", true},
    {"lfm2-odd", true},
    {"llama-odd", true},
    {"mistral-window", true},
    {"mixtral-tied", true},
    {"olmo3", true},
    {"phi3-odd", true},
    {"qwen3-moe-odd", true},
    {"qwen3-next-odd", true},
    {"qwen3-odd", true},
    {"qwen3.5-odd", true},
    {"qwen4-one", true},
};

// The row's name as a test may be called.
inline std::string TestName(const GoldenRow& row) {
  std::string name(row.name);
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

// Positions of which references keep single rows.
inline constexpr size_t kReferenceRows[] = {0, 1, 17, 40, 63, 95};

// Those rows of values of all positions; where there are fewer, the last one for the last. values: [t, width]
inline std::vector<float> ReferenceRowsOf(std::span<const float> values, size_t width) {
  std::vector<float> rows;
  for (size_t row : kReferenceRows) {
    const auto at = values.subspan(std::min(row, values.size() / width - 1) * width, width);
    rows.insert(rows.end(), at.begin(), at.end());
  }
  return rows;
}

// A reference tensor's numbers.
template <typename T>
std::vector<T> ReadTensor(const Safetensors& set, const std::string& name) {
  const SafetensorsTensor& tensor = set.Require(name);
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

}  // namespace lockstep::test
