// The option table: one row per option drives parsing, help, man page, completions, environment and
// config file.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Commands of the program, in the order in which help lists them.
enum class Cmd : uint8_t {
  kRun,
  kChat,
  kServe,
  kLogits,
  kPpl,
  kTokenize,
  kInspect,
  kPlan,
  kVerify,
  kBench,
  kConvert,
  kQuantize,
  kImatrix,
  kSynth,
  kHelp,
  kMan,
  kCompletions,
  kVersion,
};
inline constexpr std::array<std::string_view, 18> kCommandNames = {
    "run",     "chat",  "serve",  "logits", "ppl",         "tokenize",
    "inspect", "plan",  "verify", "bench",  "convert",     "quantize",
    "imatrix", "synth", "help",   "man",    "completions", "version"};
inline constexpr int kCommandCount = static_cast<int>(kCommandNames.size());

constexpr std::string_view CommandName(Cmd command) {
  return kCommandNames[static_cast<size_t>(command)];
}

class CommandSet {
 public:
  constexpr CommandSet() = default;
  constexpr CommandSet(std::initializer_list<Cmd> commands) {
    for (Cmd command : commands) bits_ |= Bit(command);
  }
  constexpr bool Has(Cmd command) const { return (bits_ & Bit(command)) != 0; }
  friend constexpr CommandSet operator|(CommandSet a, CommandSet b) {
    a.bits_ |= b.bits_;
    return a;
  }
  static constexpr CommandSet All() {
    CommandSet all;
    all.bits_ = (uint32_t{1} << kCommandCount) - 1;
    return all;
  }

 private:
  static constexpr uint32_t Bit(Cmd command) { return uint32_t{1} << static_cast<int>(command); }
  uint32_t bits_ = 0;
};

// What the value of an option looks like.
enum class Kind : uint8_t {
  kAction,    // no value; command line only (--help)
  kSwitch,    // bool: --name, --no-name, --name=on|off
  kInteger,   // int64_t
  kReal,      // double, finite
  kText,      // std::string
  kFile,      // std::string: a path
  kChoice,    // std::string: one of the domain
  kOptional,  // as kChoice; alone, it means the first of the domain
  kIntegers,  // std::vector<int64_t>: 1,2,3 and ranges 1-9, 1-9+4, 1-64*2; repeats are gathered
  kReals,     // std::vector<double>: 3,1 or 3/1
  kTexts,     // std::vector<std::string>: one a time, repeats are gathered
};

// Headings of help, in order.
enum class Group : uint8_t {
  kGeneral,
  kModel,
  kParallel,
  kContext,
  kInput,
  kOutput,
  kSampling,
  kConstraint,
  kChat,
  kDraft,
  kServer,
  kBench,
  kConvert,
  kIgnored,
  kRefused,
};
inline constexpr std::array<std::string_view, 15> kGroupTitles = {
    "General",
    "Model",
    "Threads and ranks",
    "Context and batch",
    "Input",
    "Output",
    "Sampling",
    "Constrained output",
    "Conversation",
    "Speculation",
    "Server",
    "Benchmark",
    "Conversion",
    "Accepted for compatibility, without effect here",
    "Refused with a reason"};

// Rows with a meaning. kNone: rows that are only accepted or refused.
enum class Opt : uint8_t {
  // clang-format off
  kNone,
  kHelp, kVersion, kConfig, kVerbose, kVerbosity, kQuiet, kLogFile, kLogJsonl, kLogTimestamps,
      kProgress,
  kModel, kOverrideKv, kCheckTensors, kMlock, kRopeScaling, kRopeScale, kRopeFreqBase,
      kRopeFreqScale,
  kYarnOrigCtx, kYarnExtFactor, kYarnAttnFactor, kYarnBetaSlow, kYarnBetaFast,
  kRanks, kSplitMode, kExpertSplit, kTensorSplit, kRankTimeout, kThreads, kBenchThreads, kMachines,
      kBandwidth, kPeak, kLinkBandwidth, kLinkLatency, kBarrierLatency,
  kContext, kBatch, kUbatch, kParallel, kCacheTypeK, kCacheTypeV, kKvRotate,
      kCacheRam,
  kCachePrompt, kLoadState, kSaveState, kPromptCache, kPromptCacheAll, kPromptCacheRo,
  kPrompt, kFile, kEscape, kSystemPrompt, kSystemPromptFile, kTokens, kTokensFrom, kStdin, kBos,
  kParseSpecial, kDetokenize, kInFiles,
  kPredict, kOutput, kDisplayPrompt, kVerbosePrompt, kSpecial, kShowTimings, kColor, kTrace,
      kHidden, kMtp,
  kJson, kEveryShape, kIds, kShowCount, kMetadata, kTensors, kGraph, kPlanRanks, kProgram,
  kSeed, kTemp, kTopK, kTopP, kMinP, kTopNSigma, kXtcProbability, kXtcThreshold, kTypical,
      kRepeatLastN,
  kRepeatPenalty, kPresencePenalty, kFrequencyPenalty, kDryMultiplier, kDryBase,
      kDryAllowedLength,
  kDryPenaltyLastN, kDrySequenceBreaker, kAdaptiveTarget, kAdaptiveDecay, kDynatempRange,
      kDynatempExp,
  kMirostat, kMirostatLr, kMirostatEnt, kLogitBias, kIgnoreEos, kSamplers, kSamplerSeq,
      kReversePrompt,
  kGrammar, kGrammarFile, kJsonSchema, kJsonSchemaFile,
  kChatTemplate, kChatTemplateFile, kChatTemplateKwargs, kSkipChatParsing, kReasoningFormat,
      kReasoning,
  kReasoningEffort, kReasoningBudget, kReasoningBudgetMessage, kReasoningPreserve,
      kPrefillAssistant,
  kSingleTurn, kMultilineInput, kSimpleIo, kHistory,
  kDraftModel, kSpecType, kDraftMax, kDraftMin, kDraftPMin, kNgramMatch, kNgramMin, kNgramMax,
      kNgramHits,
  kHost, kPort, kReusePort, kStaticPath, kApiPrefix, kUi, kUiConfig, kUiConfigFile, kAlias,
      kApiKey,
  kApiKeyFile, kSslKeyFile, kSslCertFile, kCorsOrigins, kCorsMethods, kCorsHeaders,
      kCorsCredentials,
  kTimeout, kSsePingInterval, kMetrics, kProps, kSlots, kSlotSavePath, kLogPromptsDir,
      kEmbedding, kPooling,
  kEmbdNormalize, kRerank,
  kBenchPrompt, kBenchGen, kBenchPromptGen, kBenchDepth, kRepetitions, kDelay, kWarmup,
      kBenchOutput, kPlot,
  kChunks, kFromChunk, kPplStride, kPplMode, kKlBase, kKlFrom, kKlDivergence,
  kConvertType, kSynthType, kArch, kSize, kImatrix, kTensorType, kOutputTensorType,
      kTokenEmbeddingType,
  kPure, kAllowRequantize, kLeaveOutputTensor, kIncludeWeights, kExcludeWeights, kKeepSplit,
      kHollow, kDryRun,
  kStrict, kProcessOutput, kSaveFrequency, kShowStatistics, kNoPpl,
  kCount,
  // clang-format on
};
inline constexpr int kOptionCount = static_cast<int>(Opt::kCount);

struct OptionRow {
  Opt id = Opt::kNone;
  Group group = Group::kGeneral;
  CommandSet commands;
  // Spellings, separated by blanks; the first long one is the option's name. "!-nkvo" is a negative
  // spelling.
  std::string_view names;
  Kind kind = Kind::kSwitch;
  std::string_view value;  // how help names the value; empty for kAction and kSwitch
  // Numbers: "LOW..HIGH", either end may be missing. Choices: "a|b"; "graph=tensor" is another
  // spelling of "tensor", "row!tensor" is refused and names "tensor". Empty: anything.
  std::string_view domain;
  // The default, written as on the command line. Empty: none, or the one that `help` describes.
  std::string_view fallback;
  std::string_view environment;  // variables besides LOCKSTEP_<NAME>, separated by blanks
  // What the option does; for Group::kIgnored and kRefused the reason.
  std::string_view help;
};

// All rows, in the order of help within a group.
std::span<const OptionRow> OptionTable();

// The row of an option. kNone and kCount have none.
const OptionRow& RowOf(Opt option);

// Calls `visit` with each blank-separated word of `list`.
template <typename Visitor>
constexpr void ForEachWord(std::string_view list, const Visitor& visit) {
  while (!list.empty()) {
    size_t end = list.find(' ');
    if (end != 0) visit(list.substr(0, end));
    if (end == std::string_view::npos) return;
    list.remove_prefix(end + 1);
  }
}

// The name of a row without dashes ("ctx-size"), as in config files and messages.
std::string_view LongName(const OptionRow& row);

// Every spelling for people: "-c, --ctx-size", with "--no-x" where switch x is on by default.
std::string Spellings(const OptionRow& row);

// LOCKSTEP_<NAME>, the variable that every option has but those of kAction.
std::string OwnVariable(const OptionRow& row);

// One spelling of a choice: what the user writes, and what it stands for. Where `refused`,
// `canonical` is the replacement to name.
struct ChoiceRow {
  std::string_view spelling;
  std::string_view canonical;
  bool refused;
};
// Calls `visit` with each ChoiceRow of a domain.
template <typename Visitor>
constexpr void ForEachChoice(std::string_view domain, const Visitor& visit) {
  while (!domain.empty()) {
    size_t end = domain.find('|');
    std::string_view word = domain.substr(0, end);
    size_t mark = word.find_first_of("=!");
    if (mark == std::string_view::npos) {
      visit(ChoiceRow{word, word, false});
    } else {
      visit(ChoiceRow{word.substr(0, mark), word.substr(mark + 1), word[mark] == '!'});
    }
    if (end == std::string_view::npos) return;
    domain.remove_prefix(end + 1);
  }
}

}  // namespace lockstep
