#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/split_mix.h"
#include "comm/communicator.h"
#include "engine/verification.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

constexpr int64_t kMicroBatches[] = {512, 1, 7, 33};
// Where no text is given: two pages and a part of one.
constexpr int64_t kRandomTokens = 160;

std::vector<int32_t> ReadTokens(const OptionValues& options, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  if (options.Given(Opt::kTokens)) {
    tokens = ReadTokenIds(options);
  } else if (options.Given(Opt::kPrompt) || options.Given(Opt::kFile)) {
    tokens = tokenizer.Encode(ReadInputText(options), {.add_special = true});
  } else {
    uint64_t state =
        static_cast<uint64_t>(std::max<int64_t>(0, options.GetOr<int64_t>(Opt::kSeed, 0)));
    for (int64_t i = 0; i < kRandomTokens; ++i) {
      state += kSplitMixStep;
      tokens.push_back(
          static_cast<int32_t>(SplitMix(state) % static_cast<uint64_t>(tokenizer.size())));
    }
  }
  if (tokens.empty()) throw Refused("verify: expected at least one token, found none");
  return tokens;
}

// The plainest shape, and what the options say; where they say nothing, the whole matrix.
std::vector<OpenedShape> ReadShapes(const OptionValues& options, const LoadOptions& load) {
  const bool given = std::ranges::any_of(
      std::initializer_list<Opt>{Opt::kRanks, Opt::kSplitMode, Opt::kExpertSplit, Opt::kTensorSplit,
                                 Opt::kThreads},
      [&](Opt option) { return options.Given(option); });
  std::vector<OpenedShape> shapes =
      ShapesToVerify(AvailableIsas(), options.Get<bool>(Opt::kEveryShape));
  if (!given) return shapes;
  shapes.resize(1);
  shapes.push_back({.ranks = load.ranks,
                    .split = load.split,
                    .proportions = load.proportions,
                    .experts = load.experts,
                    .threads = std::max(load.threads, load.ranks),
                    .isa = shapes[0].isa});
  return shapes;
}

std::string ShapeText(const OpenedShape& shape) {
  const bool whole = shape.experts == ExpertSplit::kWhole;
  std::string text =
      fmt::format("{} {} ", shape.ranks, whole ? "experts" : SplitModeName(shape.split));
  return text + (shape.proportions.empty() ? "even"
                                           : fmt::format("{}", fmt::join(shape.proportions, ":")));
}

std::string Verdict(const VerifiedRun& run) {
  return run.differs_at ? fmt::format("DIFFERS from position {} on", *run.differs_at) : "same";
}

std::string Row(const VerifiedRun& run) {
  return fmt::format("{:<18}  {:>7}  {:<8}  {:>5}  {:<14}  {}  {}\n", ShapeText(run.opened),
                     run.opened.threads, IsaName(run.opened.isa), run.micro_batch,
                     CompanyName(run.company), run.hash.substr(0, 16), Verdict(run));
}

boost::json::object Object(const VerifiedRun& run) {
  boost::json::object out = {{"ranks", run.opened.ranks},
                             {"split", SplitModeName(run.opened.split)},
                             {"proportions", boost::json::value_from(run.opened.proportions)},
                             {"experts", ExpertSplitName(run.opened.experts)},
                             {"threads", run.opened.threads},
                             {"isa", IsaName(run.opened.isa)},
                             {"micro_batch", run.micro_batch},
                             {"company", CompanyName(run.company)},
                             {"hash", run.hash},
                             {"same", !run.differs_at}};
  if (run.differs_at) out["differs_at"] = *run.differs_at;
  return out;
}

}  // namespace

int RunVerify(const OptionValues& options, Positional) {
  LoadOptions load = ReadLoadOptions(options);
  const Tokenizer tokenizer = Tokenizer::FromGguf(GgufFile::Open(load.path));
  Verification verification{load, ReadTokens(options, tokenizer), ReadShapes(options, load), {}};
  verification.micro_batches.assign(std::begin(kMicroBatches), std::end(kMicroBatches));
  if (options.Given(Opt::kUbatch)) verification.micro_batches = {load.micro_batch};

  const bool json = options.Get<bool>(Opt::kJson);
  boost::json::array runs;
  std::string first;
  int64_t count = 0, differing = 0;
  Progress bar("verify", verification.shapes.size() * verification.micro_batches.size() * 3);
  const bool same = Verify(
      verification, [](const LoadOptions& shape) { return std::make_unique<Model>(shape); },
      [&](const VerifiedRun& run) {
        if (count++ == 0) {
          first = run.hash;
          if (!json) Print("ranks, split        threads  isa       batch  company         hash\n");
        }
        differing += run.differs_at.has_value();
        if (json) {
          runs.push_back(Object(run));
        } else {
          ClearProgressLine();
          Print(Row(run));
          FlushOutput();
        }
        bar.Add(1);
      });
  if (count == 0) return 0;  // a process that followed
  if (json) {
    Print(JsonText(boost::json::object{{"tokens", verification.tokens.size()},
                                       {"processes", Processes()},
                                       {"hash", first},
                                       {"same", same},
                                       {"runs", std::move(runs)}}) +
          "\n");
  } else {
    Print(same ? fmt::format("the same bits in all {} runs of {} tokens: {}\n", count,
                             verification.tokens.size(), first)
               : fmt::format("{} of {} runs of {} tokens differ from the first, {}\n", differing,
                             count, verification.tokens.size(), first));
  }
  return same ? 0 : 1;
}

}  // namespace lockstep
