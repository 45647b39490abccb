#include "apps/model_options.h"

#include <charconv>

#include "base/progress.h"
#include "comm/communicator.h"

namespace lockstep {
namespace {

// "15043+1", "15043-inf": a token and its bias.
LogitBias ParseLogitBias(std::string_view text) {
  LogitBias bias{};
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, bias.token);
  if (error == std::errc() && at != end && (*at == '+' || *at == '-')) {
    const float sign = *at++ == '-' ? -1.0f : 1.0f;
    float value = 0;
    auto [value_end, value_error] = std::from_chars(at, end, value);
    if (value_error == std::errc() && value_end == end) {
      bias.bias = sign * value;
      return bias;
    }
  }
  throw Refused("--logit-bias: expected ID+BIAS or ID-BIAS, found '{}'", Printable(text));
}

std::vector<SamplerKind> ReadSamplers(const OptionValues& options,
                                      std::vector<SamplerKind> otherwise) {
  for (Opt option : {Opt::kSamplers, Opt::kSamplerSeq}) {
    if (options.Given(option)) return ParseSamplerOrder(options.Get<std::string>(option)).value();
  }
  return otherwise;
}

// Options that would change the answer and that nothing obeys yet: passing them over would be a lie.
void RefuseUnbuilt(const OptionValues& options) {
  for (Opt option : {Opt::kGrammar, Opt::kGrammarFile, Opt::kJsonSchema, Opt::kJsonSchemaFile,
                     Opt::kDraftModel, Opt::kOverrideKv}) {
    // Drafts are shown, and do not yet speed anything up.
    const bool shown = option == Opt::kDraftModel && options.command() == Cmd::kLogits;
    if (options.Given(option) && !shown) {
      throw Refused("--{}: not built yet; leave the option out", LongName(RowOf(option)));
    }
  }
}

}  // namespace

void ReadSplit(const OptionValues& options, LoadOptions& load) {
  if (!options.Has(Opt::kSplitMode)) return;  // a command that knows one rank only
  load.split = options.Choice<SplitMode>(Opt::kSplitMode);
  load.experts = options.Choice<ExpertSplit>(Opt::kExpertSplit);
  if (options.Given(Opt::kTensorSplit))
    load.proportions = options.Get<std::vector<double>>(Opt::kTensorSplit);
  load.ranks = static_cast<int>(options.GetOr<int64_t>(Opt::kRanks, 1));
  // Proportions say how many ranks there are where nothing else does.
  if (!options.Given(Opt::kRanks) && !load.proportions.empty())
    load.ranks = static_cast<int>(std::max<int64_t>(1, std::ssize(load.proportions) / Processes()));
}

LoadOptions ReadLoadOptions(const OptionValues& options, int64_t sequences) {
  RefuseUnbuilt(options);
  LoadOptions load;
  load.path = options.Require<std::string>(Opt::kModel);
  load.context = options.Get<int64_t>(Opt::kContext);
  load.micro_batch =
      std::min(options.Get<int64_t>(Opt::kUbatch), options.Get<int64_t>(Opt::kBatch));
  ReadSplit(options, load);
  load.lost_after_seconds = options.GetOr<double>(Opt::kRankTimeout, load.lost_after_seconds);
  const int64_t parallel = options.GetOr<int64_t>(Opt::kParallel, -1);
  load.sequences = parallel > 0 ? parallel : sequences;
  load.threads = static_cast<int>(std::max<int64_t>(0, options.GetOr<int64_t>(Opt::kThreads, -1)));
  load.k_type = options.Get<std::string>(Opt::kCacheTypeK);
  load.v_type = options.Get<std::string>(Opt::kCacheTypeV);
  load.kv_rotation = options.Choice<LoadOptions::KvRotation>(Opt::kKvRotate);
  return load;
}

SamplingParams ReadSamplingParams(const OptionValues& options) {
  SamplingParams params;
  struct RealRow {
    Opt option;
    float SamplingParams::*member;
  };
  for (const RealRow& row : {RealRow{Opt::kTemp, &SamplingParams::temp},
                             {Opt::kTopP, &SamplingParams::top_p},
                             {Opt::kMinP, &SamplingParams::min_p},
                             {Opt::kTypical, &SamplingParams::typ_p},
                             {Opt::kTopNSigma, &SamplingParams::top_n_sigma},
                             {Opt::kXtcProbability, &SamplingParams::xtc_probability},
                             {Opt::kXtcThreshold, &SamplingParams::xtc_threshold},
                             {Opt::kRepeatPenalty, &SamplingParams::penalty_repeat},
                             {Opt::kFrequencyPenalty, &SamplingParams::penalty_freq},
                             {Opt::kPresencePenalty, &SamplingParams::penalty_present},
                             {Opt::kDryMultiplier, &SamplingParams::dry_multiplier},
                             {Opt::kDryBase, &SamplingParams::dry_base},
                             {Opt::kDynatempRange, &SamplingParams::dynatemp_range},
                             {Opt::kDynatempExp, &SamplingParams::dynatemp_exponent},
                             {Opt::kMirostatEnt, &SamplingParams::mirostat_tau},
                             {Opt::kMirostatLr, &SamplingParams::mirostat_eta},
                             {Opt::kAdaptiveTarget, &SamplingParams::adaptive_target},
                             {Opt::kAdaptiveDecay, &SamplingParams::adaptive_decay}}) {
    params.*row.member = static_cast<float>(options.GetOr<double>(row.option, params.*row.member));
  }
  struct CountRow {
    Opt option;
    int32_t SamplingParams::*member;
  };
  for (const CountRow& row : {CountRow{Opt::kTopK, &SamplingParams::top_k},
                              {Opt::kRepeatLastN, &SamplingParams::penalty_last_n},
                              {Opt::kDryAllowedLength, &SamplingParams::dry_allowed_length},
                              {Opt::kDryPenaltyLastN, &SamplingParams::dry_penalty_last_n},
                              {Opt::kMirostat, &SamplingParams::mirostat}}) {
    params.*row.member =
        static_cast<int32_t>(options.GetOr<int64_t>(row.option, params.*row.member));
  }
  params.seed = options.GetOr<int64_t>(Opt::kSeed, params.seed);
  if (options.Given(Opt::kDrySequenceBreaker)) {
    params.dry_sequence_breakers = options.Get<std::vector<std::string>>(Opt::kDrySequenceBreaker);
    // "none": no breakers at all, as llama.cpp has it.
    if (params.dry_sequence_breakers == std::vector<std::string>{"none"})
      params.dry_sequence_breakers.clear();
  }
  params.samplers = ReadSamplers(options, params.samplers);
  if (options.Given(Opt::kLogitBias)) {
    for (const std::string& text : options.Get<std::vector<std::string>>(Opt::kLogitBias)) {
      params.logit_bias.push_back(ParseLogitBias(text));
    }
  }
  return params;
}

template <typename Opened>
std::unique_ptr<Opened> OpenWithProgress(LoadOptions options) {
  // The bar needs the size, which the first call brings.
  std::unique_ptr<Progress> bar;
  options.progress = [&bar](int64_t done, int64_t all) {
    if (!bar)
      bar = std::make_unique<Progress>("loading", static_cast<uint64_t>(all),
                                       ProgressOptions{.unit = ProgressUnit::kBytes});
    bar->Set(static_cast<uint64_t>(done));
  };
  auto opened = std::make_unique<Opened>(options);
  if (opened->leads()) return opened;
  opened->Follow();
  return nullptr;
}

template std::unique_ptr<Engine> OpenWithProgress<Engine>(LoadOptions options);
template std::unique_ptr<Model> OpenWithProgress<Model>(LoadOptions options);

std::string SpeedText(int64_t tokens, double seconds) {
  return fmt::format("{} tokens in {:.2f} s, {:.1f} tokens/s", tokens, seconds,
                     seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
}

}  // namespace lockstep
