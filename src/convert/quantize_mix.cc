#include "convert/quantize_mix.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>
#include <regex>

#include "base/error.h"

namespace lockstep {
namespace {

using enum MixId;

constexpr Mix kMixes[] = {{kF32, "F32", "F32", 0},          {kF16, "F16", "F16", 1},
                          {kBf16, "BF16", "BF16", 32},      {kQ1_0, "Q1_0", "Q1_0", 40},
                          {kQ4_0, "Q4_0", "Q4_0", 2},       {kQ4_1, "Q4_1", "Q4_1", 3},
                          {kQ5_0, "Q5_0", "Q5_0", 8},       {kQ5_1, "Q5_1", "Q5_1", 9},
                          {kQ8_0, "Q8_0", "Q8_0", 7},       {kMxfp4Moe, "MXFP4_MOE", "MXFP4", 38},
                          {kNvfp4, "NVFP4", "NVFP4", 39},   {kTq1_0, "TQ1_0", "TQ1_0", 36},
                          {kTq2_0, "TQ2_0", "TQ2_0", 37},   {kQ2K, "Q2_K", "Q2_K", 10},
                          {kQ2KS, "Q2_K_S", "Q2_K", 21},    {kQ3KS, "Q3_K_S", "Q3_K", 11},
                          {kQ3KM, "Q3_K_M", "Q3_K", 12},    {kQ3KL, "Q3_K_L", "Q3_K", 13},
                          {kQ4KS, "Q4_K_S", "Q4_K", 14},    {kQ4KM, "Q4_K_M", "Q4_K", 15},
                          {kQ5KS, "Q5_K_S", "Q5_K", 16},    {kQ5KM, "Q5_K_M", "Q5_K", 17},
                          {kQ6K, "Q6_K", "Q6_K", 18},       {kIq1S, "IQ1_S", "IQ1_S", 24},
                          {kIq1M, "IQ1_M", "IQ1_M", 31},    {kIq2Xxs, "IQ2_XXS", "IQ2_XXS", 19},
                          {kIq2Xs, "IQ2_XS", "IQ2_XS", 20}, {kIq2S, "IQ2_S", "IQ2_XS", 28},
                          {kIq2M, "IQ2_M", "IQ2_S", 29},    {kIq3Xxs, "IQ3_XXS", "IQ3_XXS", 23},
                          {kIq3Xs, "IQ3_XS", "IQ3_S", 22},  {kIq3S, "IQ3_S", "IQ3_S", 26},
                          {kIq3M, "IQ3_M", "IQ3_S", 27},    {kIq4Nl, "IQ4_NL", "IQ4_NL", 25},
                          {kIq4Xs, "IQ4_XS", "IQ4_XS", 30}, {kCopy, "COPY", "", 0}};

constexpr std::pair<std::string_view, MixId> kAliases[] = {
    {"Q3_K", kQ3KM}, {"Q4_K", kQ4KM}, {"Q5_K", kQ5KM}, {"MXFP4", kMxfp4Moe}};

class MixSet {
 public:
  constexpr MixSet(std::initializer_list<MixId> mixes) {
    for (MixId mix : mixes) bits_ |= uint64_t{1} << static_cast<int>(mix);
  }
  constexpr bool Has(MixId mix) const { return (bits_ >> static_cast<int>(mix) & 1) != 0; }
  static constexpr MixSet AllBut(MixId mix) {
    MixSet all{mix};
    all.bits_ = ~all.bits_;
    return all;
  }

 private:
  uint64_t bits_ = 0;
};
// Outside its experts MXFP4_MOE is Q8_0 everywhere.
constexpr MixSet kAnyMix = MixSet::AllBut(kMxfp4Moe);
constexpr MixSet kTiny = {kIq1S, kIq1M, kIq2Xxs, kIq2Xs, kIq2S, kIq2M};

// What a tensor does, by its name in files.
enum class Role : uint8_t {
  kOutput,
  kEmbedding,
  kAttentionQ,
  kAttentionK,
  kAttentionV,  // also the fused forms that hold V
  kAttentionOutput,
  kUp,
  kGate,
  kDown,
  kOther,
};

struct RoleName {
  std::string_view part;  // of the name
  Role role;
};
constexpr RoleName kRoleNames[] = {{"attn_qkv.weight", Role::kAttentionV},
                                   {"attn_kv_b.weight", Role::kAttentionV},
                                   {"attn_v.weight", Role::kAttentionV},
                                   {"attn_k.weight", Role::kAttentionK},
                                   {"attn_q.weight", Role::kAttentionQ},
                                   {"attn_output.weight", Role::kAttentionOutput},
                                   {"ffn_up", Role::kUp},
                                   {"ffn_gate", Role::kGate},
                                   {"ffn_down", Role::kDown}};

Role RoleOf(std::string_view name) {
  if (name == "output.weight") return Role::kOutput;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Role::kEmbedding;
  for (const RoleName& row : kRoleNames) {
    if (name.find(row.part) != std::string_view::npos) return row.role;
  }
  return Role::kOther;
}

// Matrices that stay as they are: small, and steering more than they weigh.
constexpr std::string_view kKept[] = {"_norm.weight",
                                      "ffn_gate_inp.weight",
                                      "ffn_gate_tid2eid",
                                      "altup",
                                      "laurel",
                                      "per_layer_model_proj",
                                      "ssm_conv1d",
                                      "shortconv.conv.weight",
                                      "position_embd",
                                      "token_types",
                                      "attn_rel_b.weight",
                                      "time_mix_first.weight",
                                      "time_mix_w0.weight",
                                      "time_mix_w1.weight",
                                      "time_mix_w2.weight",
                                      "time_mix_v0.weight",
                                      "time_mix_v1.weight",
                                      "time_mix_v2.weight",
                                      "time_mix_a0.weight",
                                      "time_mix_a1.weight",
                                      "time_mix_a2.weight",
                                      "time_mix_g1.weight",
                                      "time_mix_g2.weight",
                                      "time_mix_decay_w1.weight",
                                      "time_mix_decay_w2.weight",
                                      "time_mix_lerp_fused.weight",
                                      "indexer.k_proj.weight",
                                      "indexer.q_proj.weight"};

bool IsQuantizable(const GgufTensor& tensor) {
  // A matrix of one row counts as a vector, as trailing ones are no dimensions to llama.cpp.
  const bool matrix = tensor.rows() > 1 && tensor.dims_count >= 2;
  return matrix && tensor.name.ends_with("weight") &&
         std::ranges::none_of(kKept, [&](std::string_view part) {
           return tensor.name.find(part) != std::string_view::npos;
         });
}

// When a rule holds: all of its bits do.
enum When : uint32_t {
  kAlways = 0,
  kWideHeads = 1 << 0,     // four query heads or more to a KV head
  kFourExperts = 1 << 1,   // or more
  kEightExperts = 1 << 2,  // exactly: Mixtral
  kNoEightExperts = 1 << 3,
  kFirstTwo = 1 << 4,  // layers
  kFirstFour = 1 << 5,
  kFirstEighth = 1 << 6,  // of the layers
  kFirstSixteenth = 1 << 7,
  kMiddle = 1 << 8,    // neither the first nor the last eighth
  kMoreBits = 1 << 9,  // the first and last eighth, and every third layer between
  kImatrix = 1 << 10,
  kNoImatrix = 1 << 11,
  kStacked = 1 << 12,  // a matrix for each expert
};

struct Rule {
  MixSet mixes;
  Role role;
  uint32_t when;
  std::string_view format;
};

// The first rule that holds gives the format; without one it is the mix's own.
constexpr Rule kRules[] = {
    {{kMxfp4Moe}, Role::kUp, kStacked, "MXFP4"},
    {{kMxfp4Moe}, Role::kGate, kStacked, "MXFP4"},
    {{kMxfp4Moe}, Role::kDown, kStacked, "MXFP4"},

    {{kQ8_0}, Role::kOutput, kAlways, "Q8_0"},
    {{kIq1S, kIq1M, kIq2Xxs, kIq2Xs, kIq2S, kIq2M, kIq3Xxs}, Role::kOutput, kAlways, "Q5_K"},
    {kAnyMix, Role::kOutput, kAlways, "Q6_K"},

    {{kIq2Xxs, kIq2Xs, kIq1S, kIq1M}, Role::kEmbedding, kAlways, "Q2_K"},
    {{kIq2S, kIq2M, kIq3Xxs}, Role::kEmbedding, kAlways, "IQ3_S"},
    {{kTq1_0, kTq2_0}, Role::kEmbedding, kAlways, "Q4_K"},

    {kTiny, Role::kAttentionV, kWideHeads, "Q4_K"},
    {kTiny, Role::kAttentionV, kFourExperts, "Q4_K"},
    {{kIq2S, kIq2M}, Role::kAttentionV, kAlways, "IQ3_S"},
    {kTiny, Role::kAttentionV, kAlways, "Q2_K"},
    {kAnyMix, Role::kAttentionV, kEightExperts, "Q8_0"},
    {{kQ2K, kQ2KS, kIq3Xxs, kIq3Xs, kIq3S}, Role::kAttentionV, kWideHeads, "Q4_K"},
    {{kQ2K}, Role::kAttentionV, kAlways, "Q3_K"},
    {{kIq3Xxs}, Role::kAttentionV, kNoImatrix, "IQ3_S"},
    {{kIq3M}, Role::kAttentionV, kAlways, "Q4_K"},
    {{kQ3KM}, Role::kAttentionV, kFirstTwo, "Q5_K"},
    {{kQ3KM}, Role::kAttentionV, kAlways, "Q4_K"},
    {{kQ3KL}, Role::kAttentionV, kAlways, "Q5_K"},
    {{kIq4Nl, kIq4Xs}, Role::kAttentionV, kWideHeads, "Q5_K"},
    {{kQ4KM, kQ5KM}, Role::kAttentionV, kMoreBits, "Q6_K"},
    {{kQ4KS}, Role::kAttentionV, kFirstFour, "Q5_K"},

    {kTiny, Role::kAttentionK, kEightExperts, "Q4_K"},
    {kAnyMix, Role::kAttentionK, kEightExperts, "Q8_0"},
    {{kIq3Xs}, Role::kAttentionK, kAlways, "IQ3_XXS"},
    {{kIq3Xxs}, Role::kAttentionK, kAlways, "IQ2_S"},
    {{kIq3Xs}, Role::kAttentionQ, kAlways, "IQ3_XXS"},
    {{kIq3Xxs}, Role::kAttentionQ, kAlways, "IQ2_S"},

    {kTiny, Role::kAttentionOutput, kEightExperts, "Q5_K"},
    {{kIq1S, kIq1M}, Role::kAttentionOutput, kAlways, "IQ2_XXS"},
    {{kIq2S, kIq2M}, Role::kAttentionOutput, kAlways, "IQ3_S"},
    {{kQ2K, kIq3Xs, kIq3Xxs, kQ3KS, kQ3KM, kIq4Nl, kQ4KS, kQ4KM, kIq3S, kIq3M, kIq4Xs},
     Role::kAttentionOutput,
     kEightExperts,
     "Q5_K"},
    {{kQ2K}, Role::kAttentionOutput, kNoEightExperts, "Q3_K"},
    {{kIq3Xxs}, Role::kAttentionOutput, kNoEightExperts, "IQ3_S"},
    {{kQ3KM, kIq3M}, Role::kAttentionOutput, kNoEightExperts, "Q4_K"},
    {{kQ3KL}, Role::kAttentionOutput, kNoEightExperts, "Q5_K"},

    {{kIq3Xs}, Role::kGate, kMiddle, "IQ3_XXS"},
    {{kIq3Xs}, Role::kUp, kMiddle, "IQ3_XXS"},

    {{kIq2S, kIq2M}, Role::kDown, kFirstEighth, "IQ3_S"},
    {kTiny, Role::kDown, kFirstEighth, "Q2_K"},
    {{kQ2K}, Role::kDown, kAlways, "Q3_K"},
    {{kQ2KS}, Role::kDown, kFirstEighth, "Q4_K"},
    {{kIq3Xxs}, Role::kDown, kNoImatrix | kFirstEighth, "Q4_K"},
    {{kIq3Xxs}, Role::kDown, kNoImatrix, "Q3_K"},
    {{kQ3KM}, Role::kDown, kFirstSixteenth, "Q5_K"},
    {{kQ3KM}, Role::kDown, kAlways, "Q4_K"},
    {{kIq3M}, Role::kDown, kFirstEighth, "Q4_K"},
    {{kIq3M}, Role::kDown, kEightExperts | kMoreBits, "Q4_K"},
    {{kQ3KL}, Role::kDown, kAlways, "Q5_K"},
    {{kQ4KM, kQ5KM}, Role::kDown, kMoreBits, "Q6_K"},
    {{kIq4Nl, kIq4Xs}, Role::kDown, kNoImatrix | kFirstEighth, "Q5_K"},
    {{kQ4KS}, Role::kDown, kFirstEighth, "Q5_K"},
    {{kQ4_0}, Role::kDown, kImatrix | kFirstEighth, "Q4_1"},
    {{kQ5_0}, Role::kDown, kImatrix | kFirstEighth, "Q5_1"},
};

// Formats of blocks of 32 for rows that are no multiple of 256.
struct Fallback {
  std::string_view format, instead;
};
constexpr Fallback kFallbacks[] = {
    {"IQ1_S", "IQ4_NL"}, {"IQ1_M", "IQ4_NL"},   {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"},
    {"IQ2_S", "IQ4_NL"}, {"IQ3_XXS", "IQ4_NL"}, {"IQ3_S", "IQ4_NL"},   {"IQ4_XS", "IQ4_NL"},
    {"Q2_K", "Q4_0"},    {"Q3_K", "Q4_0"},      {"TQ1_0", "Q4_0"},     {"TQ2_0", "Q4_0"},
    {"Q4_K", "Q5_0"},    {"Q5_K", "Q5_1"},      {"Q6_K", "Q8_0"},      {"NVFP4", "Q4_0"},
    {"Q1_0", "Q4_0"}};

// Whether files have weights in it.
bool IsTarget(const Format& format) {
  return format.encode != nullptr && format.name != "Q8_1" && format.name != "Q8_K";
}

bool Fits(const Format& format, const GgufTensor& tensor) {
  return tensor.dims[0] % static_cast<uint64_t>(format.block) == 0;
}

// The model's sizes that rules look at.
struct ModelSizes {
  int64_t layers = 0, experts = 0, heads_per_kv = 1;

  static ModelSizes Of(const GgufMetadata& metadata) {
    const auto arch = std::string(metadata.Required<std::string_view>("general.architecture"));
    ModelSizes sizes;
    constexpr GgufRange kCount{0, 1 << 20};
    sizes.layers = metadata.OptionalOr<int64_t>(arch + ".block_count", 0, kCount);
    sizes.experts = metadata.OptionalOr<int64_t>(arch + ".expert_count", 0, kCount);
    const int64_t heads = First(metadata, arch + ".attention.head_count");
    const int64_t kv_heads = First(metadata, arch + ".attention.head_count_kv");
    if (kv_heads > 0) sizes.heads_per_kv = heads / kv_heads;
    return sizes;
  }

 private:
  // The number for all layers, or that of the first.
  static int64_t First(const GgufMetadata& metadata, const std::string& key) {
    const std::optional<GgufValue> value = metadata.Find(key);
    if (!value) return 0;
    if (value->type != GgufValueType::kArray) return metadata.Required<int64_t>(key, {0, 1 << 20});
    const auto all = metadata.RequiredArray<int64_t>(key, {}, {0, 1 << 20});
    return all.empty() ? 0 : all[0];
  }
};

// "blk.7.": 7; -1 where there is none.
int64_t LayerOf(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + 4, end, layer);
  return error == std::errc() && at != end && *at == '.' ? layer : -1;
}

// Chooses by the rules, tensor after tensor in the order of layers: some count those of their role.
class Chooser {
 public:
  Chooser(std::span<const GgufTensor> tensors, const GgufMetadata& metadata,
          const MixOptions& options)
      : options_(options), sizes_(ModelSizes::Of(metadata)) {
    for (const GgufTensor& tensor : tensors) ++totals_[RoleOf(tensor.name)];
  }

  std::string_view Choose(const GgufTensor& tensor) {
    const MixId mix = options_.mix->id;
    Role role = RoleOf(tensor.name);
    const int64_t count = seen_[role]++;
    // Without an output matrix the embedding is that too.
    if (role == Role::kEmbedding && !totals_.contains(Role::kOutput)) role = Role::kOutput;
    if (role == Role::kOutput && mix != kMxfp4Moe &&
        !Fits(*FindFormat(options_.mix->format), tensor)) {
      return "Q8_0";
    }
    const uint32_t facts = FactsOf(tensor, role, count);
    std::string_view format = mix == kMxfp4Moe ? "Q8_0" : options_.mix->format;
    const auto holds = [&](const Rule& rule) {
      return rule.role == role && rule.mixes.Has(mix) && (rule.when & ~facts) == 0;
    };
    if (const auto* rule = std::ranges::find_if(kRules, holds); rule != std::end(kRules)) {
      format = rule->format;
    }
    // Of the 70B models, with 80 layers, eight heads share one V: more bits for it cost little.
    const bool bump = role == Role::kAttentionV && sizes_.layers == 80 && !kTiny.Has(mix);
    return bump && (format == "Q3_K" || format == "Q4_K") ? "Q5_K" : format;
  }

 private:
  uint32_t FactsOf(const GgufTensor& tensor, Role role, int64_t count) const {
    const bool is_v = role == Role::kAttentionV;
    const int64_t layer = LayerOf(tensor.name);
    const bool by_name = !is_v && sizes_.experts > 1 && layer >= 0 && !kTiny.Has(options_.mix->id);
    const int64_t i = by_name ? layer : count;
    const auto total = totals_.find(Role::kAttentionV);
    const int64_t n = is_v && total != totals_.end() ? total->second : sizes_.layers;
    uint32_t facts = 0;
    const auto set = [&](When bit, bool holds) { facts |= holds ? bit : 0u; };
    set(kWideHeads, sizes_.heads_per_kv >= 4);
    set(kFourExperts, sizes_.experts >= 4);
    set(kEightExperts, sizes_.experts == 8);
    set(kNoEightExperts, sizes_.experts != 8);
    set(kFirstTwo, i < 2);
    set(kFirstFour, i < 4);
    set(kFirstEighth, i < n / 8);
    set(kFirstSixteenth, i < n / 16);
    set(kMiddle, i >= n / 8 && i < 7 * n / 8);
    set(kMoreBits, i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2);
    set(kImatrix, options_.has_imatrix);
    set(kNoImatrix, !options_.has_imatrix);
    set(kStacked, tensor.dims[2] > 1);
    return facts;
  }

  const MixOptions& options_;
  ModelSizes sizes_;
  std::map<Role, int64_t> totals_, seen_;
};

struct Override {
  std::regex pattern;
  const Format* format;
};

std::vector<Override> CompileOverrides(const MixOptions& options) {
  std::vector<Override> overrides;
  for (const auto& [pattern, format] : options.overrides) {
    try {
      overrides.push_back({std::regex(pattern), &FindTargetFormat(format, "--tensor-type")});
    } catch (const std::regex_error&) {
      throw Refused("--tensor-type: expected a regular expression, found '{}'", Printable(pattern));
    }
  }
  return overrides;
}

// What is meant for a tensor that may be quantised, and whether by the caller and not by the mix.
struct Meaning {
  const Format* format;
  bool asked;
};

// What is meant, or what takes its place where rows are no whole blocks of it.
const Format& Fitting(const Meaning& meant, const GgufTensor& tensor, bool strict) {
  const Format& wanted = *meant.format;
  if (Fits(wanted, tensor)) return wanted;
  if (meant.asked || strict) {
    std::string fitting;
    for (const Format* format : AllFormats()) {
      if (IsTarget(*format) && Fits(*format, tensor))
        fitting += fmt::format("{}{}", fitting.empty() ? "" : " ", format->name);
    }
    throw Refused("{}: expected rows of a multiple of {} weights for {}, found {}, which fit {}",
                  Printable(tensor.name), wanted.block, wanted.name, tensor.dims[0], fitting);
  }
  const auto* row = std::ranges::find(kFallbacks, wanted.name, &Fallback::format);
  if (row != std::end(kFallbacks)) {
    const Format& instead = *FindFormat(row->instead);
    if (Fits(instead, tensor)) return instead;
  }
  return *FindFormat("F16");
}

Meaning Meant(const GgufTensor& tensor, const MixOptions& options,
              const std::vector<Override>& overrides, bool tied, std::string_view chosen) {
  const Role role = RoleOf(tensor.name);
  if (role == Role::kEmbedding && !options.embedding_format.empty()) {
    return {&FindTargetFormat(options.embedding_format, "--token-embedding-type"), true};
  }
  const bool output = role == Role::kOutput || (role == Role::kEmbedding && tied);
  if (output && !options.output_format.empty()) {
    return {&FindTargetFormat(options.output_format, "--output-tensor-type"), true};
  }
  for (const Override& row : overrides) {
    if (std::regex_search(tensor.name.begin(), tensor.name.end(), row.pattern)) {
      return {row.format, true};
    }
  }
  return {FindFormat(chosen), false};
}

}  // namespace

const Mix* FindMix(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  for (const auto& [alias, id] : kAliases) {
    if (upper == alias) return &kMixes[static_cast<size_t>(id)];
  }
  for (const Mix& mix : kMixes) {
    const bool numbered = mix.id != kCopy && upper == std::to_string(mix.number);
    if (upper == mix.name || numbered) return &mix;
  }
  return nullptr;
}

const Mix& RequireMix(std::string_view name) {
  if (const Mix* mix = FindMix(name)) return *mix;
  std::string all;
  for (const Mix& mix : kMixes) all += fmt::format("{}{}", all.empty() ? "" : ", ", mix.name);
  throw Refused("type: expected one of {}, found '{}'", all, Printable(name));
}

const Format& FindTargetFormat(std::string_view name, std::string_view who) {
  const Format* format = FindFormat(name);
  if (format == nullptr || !IsTarget(*format))
    throw Refused("{}: expected a format of weights, found '{}'", who, Printable(name));
  return *format;
}

std::vector<PlannedTensor> PlanFormats(std::span<const GgufTensor> tensors,
                                       const GgufMetadata& metadata, const MixOptions& options) {
  const std::vector<Override> overrides = CompileOverrides(options);
  const bool copies = options.mix->id == kCopy;
  const Format* own = copies ? nullptr : FindFormat(options.mix->format);
  // Only formats of blocks are mixed.
  const bool mixes = !copies && !options.pure && own->block > 1;
  std::vector<PlannedTensor> plan;
  for (const GgufTensor& tensor : tensors) {
    const Format* from = FindFormat(tensor.type->id);
    LOCKSTEP_CHECK(from != nullptr, "type {}", tensor.type->id);
    plan.push_back({.tensor = tensor, .from = from, .to = from, .meant = from});
  }
  std::vector<size_t> order(plan.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return LayerOf(plan[i].tensor.name); });

  const bool tied = std::ranges::none_of(
      tensors, [](const GgufTensor& tensor) { return RoleOf(tensor.name) == Role::kOutput; });
  std::optional<Chooser> chooser;
  if (mixes) chooser.emplace(tensors, metadata, options);
  for (size_t i : order) {
    PlannedTensor& row = plan[i];
    const bool kept = options.leave_output && RoleOf(row.tensor.name) == Role::kOutput;
    if (copies || kept || !IsQuantizable(row.tensor)) continue;
    const std::string_view chosen = mixes ? chooser->Choose(row.tensor) : own->name;
    const Meaning meant = Meant(row.tensor, options, overrides, tied, chosen);
    row.meant = meant.format;
    row.to = &Fitting(meant, row.tensor, options.strict);
    const Role role = RoleOf(row.tensor.name);
    const bool small = options.mix->id == kQ2KS && row.to->name == "Q2_K";
    row.needs_importance =
        (row.to->needs_importance || small) && role != Role::kOutput && role != Role::kEmbedding;
  }
  return plan;
}

}  // namespace lockstep
