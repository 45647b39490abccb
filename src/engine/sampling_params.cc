#include "engine/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using P = SamplingParams;

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxSamplers = 256;
constexpr size_t kMaxBreakers = 256;

constexpr SamplingField kFields[] = {
    {"temperature", "--temp", &P::temp, -1e6, 1e6},
    {"dynatemp_range", "--dynatemp-range", &P::dynatemp_range, 0, 1e6},
    {"dynatemp_exponent", "--dynatemp-exp", &P::dynatemp_exponent, 0, 1e6},
    {"top_k", "--top-k", &P::top_k, -1, kMaxInt},
    {"top_p", "--top-p", &P::top_p, 0, 1},
    {"min_p", "--min-p", &P::min_p, 0, 1},
    {"typical_p", "--typical", &P::typ_p, 0, 1},
    {"top_n_sigma", "--top-nsigma", &P::top_n_sigma, -1, 1e6},
    {"xtc_probability", "--xtc-probability", &P::xtc_probability, 0, 1},
    {"xtc_threshold", "--xtc-threshold", &P::xtc_threshold, 0, 1},
    {"min_keep", "", &P::min_keep, 0, kMaxInt},
    {"repeat_last_n", "--repeat-last-n", &P::penalty_last_n, -1, kMaxInt},
    {"repeat_penalty", "--repeat-penalty", &P::penalty_repeat, 1e-3f, 1e3},
    {"frequency_penalty", "--frequency-penalty", &P::penalty_freq, -1e3, 1e3},
    {"presence_penalty", "--presence-penalty", &P::penalty_present, -1e3, 1e3},
    {"dry_multiplier", "--dry-multiplier", &P::dry_multiplier, 0, 1e6},
    {"dry_base", "--dry-base", &P::dry_base, 0, 1e6},
    {"dry_allowed_length", "--dry-allowed-length", &P::dry_allowed_length, 0, kMaxInt},
    {"dry_penalty_last_n", "--dry-penalty-last-n", &P::dry_penalty_last_n, -1, kMaxInt},
    {"mirostat", "--mirostat", &P::mirostat, 0, 2},
    {"mirostat_tau", "--mirostat-ent", &P::mirostat_tau, 0, 1e3},
    {"mirostat_eta", "--mirostat-lr", &P::mirostat_eta, 0, 1e3},
    {"adaptive_target", "--adaptive-target", &P::adaptive_target, -1, 1},
    {"adaptive_decay", "--adaptive-decay", &P::adaptive_decay, 0, 0.99f},
    {"n_probs", "", &P::n_probs, 0, kMaxInt},
};

struct Spelling {
  std::string_view name;
  SamplerKind kind;
};
// Indexed by kind.
constexpr struct {
  std::string_view name;
  char letter;
} kSamplers[kSamplerKinds] = {
    {"penalties", 'e'},   {"dry", 'd'},        {"top_n_sigma", 's'}, {"top_k", 'k'},
    {"typ_p", 'y'},       {"top_p", 'p'},      {"min_p", 'm'},       {"xtc", 'x'},
    {"temperature", 't'}, {"adaptive_p", 'a'},
};
constexpr Spelling kAlternatives[] = {
    {"top-n-sigma", SamplerKind::kTopNSigma},
    {"top-k", SamplerKind::kTopK},
    {"typical-p", SamplerKind::kTypicalP},
    {"typical", SamplerKind::kTypicalP},
    {"typ-p", SamplerKind::kTypicalP},
    {"typ", SamplerKind::kTypicalP},
    {"top-p", SamplerKind::kTopP},
    {"nucleus", SamplerKind::kTopP},
    {"min-p", SamplerKind::kMinP},
    {"temp", SamplerKind::kTemperature},
    {"adaptive-p", SamplerKind::kAdaptiveP},
};

std::optional<SamplerKind> FindName(std::string_view name) {
  for (int i = 0; i < kSamplerKinds; ++i) {
    if (kSamplers[i].name == name) return static_cast<SamplerKind>(i);
  }
  for (const Spelling& spelling : kAlternatives) {
    if (spelling.name == name) return spelling.kind;
  }
  return std::nullopt;
}

std::optional<SamplerKind> FindLetter(char letter) {
  for (int i = 0; i < kSamplerKinds; ++i) {
    if (kSamplers[i].letter == letter) return static_cast<SamplerKind>(i);
  }
  return std::nullopt;
}

Error TooMany(size_t found) {
  return Refused("sampling: samplers: expected at most {}, found {}", kMaxSamplers, found);
}

std::optional<Error> ValidateField(const SamplingField& field, const SamplingParams& params) {
  return std::visit(
      [&](auto member) -> std::optional<Error> {
        auto value = params.*member;
        // Also false for NaN.
        if (value >= field.min && value <= field.max) return std::nullopt;
        return Refused("sampling: {}: expected {:g} to {:.10g}, found {}", field.name, field.min,
                       field.max, value);
      },
      field.member);
}

std::optional<Error> ValidateBias(std::span<const LogitBias> biases, int64_t vocab_size) {
  if (biases.size() > static_cast<uint64_t>(vocab_size)) {
    return Refused("sampling: logit_bias: expected at most {} entries, found {}", vocab_size,
                   biases.size());
  }
  for (const LogitBias& bias : biases) {
    if (bias.token < 0 || bias.token >= vocab_size) {
      return Refused("sampling: logit_bias: expected token ids 0 to {}, found {}", vocab_size - 1,
                     bias.token);
    }
    if (std::isnan(bias.bias)) {
      return Refused("sampling: logit_bias: token {}: expected a number, found nan", bias.token);
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const SamplingField> SamplingFields() { return kFields; }

std::optional<Error> SamplingParams::Validate(int64_t vocab_size) const {
  if (vocab_size < 1 || vocab_size > std::numeric_limits<int32_t>::max()) {
    return Refused("sampling: vocabulary: expected 1 to {} tokens, found {}",
                   std::numeric_limits<int32_t>::max(), vocab_size);
  }
  for (const SamplingField& field : kFields) {
    if (auto error = ValidateField(field, *this)) return error;
  }
  if (samplers.size() > kMaxSamplers) return TooMany(samplers.size());
  for (SamplerKind kind : samplers) {
    if (static_cast<int>(kind) >= kSamplerKinds) {
      return Refused("sampling: samplers: expected a known sampler, found number {}",
                     static_cast<int>(kind));
    }
  }
  if (dry_sequence_breakers.size() > kMaxBreakers) {
    return Refused("sampling: dry_sequence_breakers: expected at most {}, found {}", kMaxBreakers,
                   dry_sequence_breakers.size());
  }
  return ValidateBias(logit_bias, vocab_size);
}

Result<SamplerKind> ParseSamplerName(std::string_view name) {
  if (auto kind = FindName(name)) return *kind;
  return Refused("sampling: samplers: expected a sampler such as top_k, found \"{}\"",
                 Printable(name));
}

Result<std::vector<SamplerKind>> ParseSamplerOrder(std::string_view text) {
  std::vector<SamplerKind> order;
  bool letters = !FindName(text) && std::all_of(text.begin(), text.end(), FindLetter);
  if (letters) {
    if (text.size() > kMaxSamplers) return TooMany(text.size());
    for (char letter : text) order.push_back(*FindLetter(letter));
    return order;
  }
  while (!text.empty()) {
    size_t end = std::min(text.find(';'), text.size());
    std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty()) continue;
    auto kind = ParseSamplerName(name);
    if (!kind.ok()) return kind.error();
    order.push_back(*kind);
    if (order.size() > kMaxSamplers) return TooMany(order.size());
  }
  return order;
}

std::string_view SamplerName(SamplerKind kind) {
  auto index = static_cast<size_t>(kind);
  return index < kSamplerKinds ? kSamplers[index].name : "unknown";
}

}  // namespace lockstep
