#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "apps/bench_report.h"
#include "apps/command.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/bandwidth.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/evaluator.h"
#include "engine/integer_peak.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// "512,64": a prompt and an answer.
BenchTest ParsePair(std::string_view text) {
  BenchTest test;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, test.prompt);
  if (error == std::errc() && at != end && *at == ',') {
    auto [last, gen_error] = std::from_chars(at + 1, end, test.gen);
    constexpr int64_t kMost = 1048576;
    const bool whole = gen_error == std::errc() && last == end;
    if (whole && test.prompt > 0 && test.gen > 0 && std::max(test.prompt, test.gen) <= kMost) {
      return test;
    }
  }
  throw Refused("--n-prompt-gen: expected P,N, two numbers from 1, found '{}'", Printable(text));
}

// Every test at every depth; by ascending depth, so that the cache only ever grows.
std::vector<BenchTest> ReadTests(const OptionValues& options) {
  std::vector<int64_t> depths = options.Get<std::vector<int64_t>>(Opt::kBenchDepth);
  std::ranges::sort(depths);
  std::vector<BenchTest> tests;
  for (int64_t depth : depths) {
    auto add = [&](BenchTest test) {
      test.depth = depth;
      if (test.prompt + test.gen > 0) tests.push_back(test);
    };
    for (int64_t n : options.Get<std::vector<int64_t>>(Opt::kBenchPrompt)) add({.prompt = n});
    for (int64_t n : options.Get<std::vector<int64_t>>(Opt::kBenchGen)) add({.gen = n});
    if (!options.Given(Opt::kBenchPromptGen)) continue;
    for (const std::string& text : options.Get<std::vector<std::string>>(Opt::kBenchPromptGen)) {
      add(ParsePair(text));
    }
  }
  if (tests.empty()) throw Refused("bench: expected something to measure, found only lengths of 0");
  return tests;
}

// Operations that weights cost: two for each number of each matrix.
struct WeightWork {
  double of_token = 0;   // without the output head
  double of_logits = 0;  // of a row of logits
};

WeightWork CountWork(const Model& model) {
  WeightWork work;
  for (const WeightUse& use : FindWeights(model.graph(), model.file())) {
    (use.rows == model.vocab() ? work.of_logits : work.of_token) += use.used() * use.ops();
  }
  return work;
}

// Runs the tests of one model with one number of threads.
class BenchRunner {
 public:
  explicit BenchRunner(Model& model) : model_(model), evaluator_(model), work_(CountWork(model)) {}

  // Fills the cache up to the test's depth, or cuts it back.
  void Prepare(const BenchTest& test) {
    if (evaluator_.position() > test.depth) evaluator_.Rewind(test.depth);
    Take(test.depth - evaluator_.position(), 0);
  }

  // Seconds of a prompt, of which the last row gives logits, and an answer one token at a time.
  double Measure(const BenchTest& test) {
    const Clock::time_point start = Clock::now();
    if (test.prompt > 0) Take(test.prompt, 1);
    for (int64_t i = 0; i < test.gen; ++i) Take(1, 1);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void MeasureLimits() {
    read_limit_ = MeasureReadBandwidth(model_.team());
    ops_limit_ = MeasureIntegerPeak(model_.team(), model_.isa());
  }

  void Account(double seconds, BenchResult& result) const {
    const BenchTest& test = result.test;
    const double rate = static_cast<double>(test.prompt + test.gen) / seconds;
    result.tokens_per_s.Add(rate);
    result.samples.push_back(rate);
    result.read_limit.Add(read_limit_);
    result.ops_limit.Add(ops_limit_);
    if (test.prompt == 0) {
      const double positions =
          static_cast<double>(test.depth) + static_cast<double>(test.gen + 1) / 2;
      const double bytes = static_cast<double>(model_.bytes_per_token()) +
                           positions * static_cast<double>(model_.kv_bytes_per_position());
      result.bytes_per_s.Add(bytes * rate);
      result.share.Add(bytes * rate / read_limit_);
    } else if (test.gen == 0) {
      const double ops =
          (work_.of_token * static_cast<double>(test.prompt) + work_.of_logits) / seconds;
      result.ops_per_s.Add(ops);
      result.share.Add(ops / ops_limit_);
    }
  }

 private:
  // Takes `count` tokens in; the last `wanted` of them give logits. A token depends on its position
  // alone, so that a cache that was cut back and filled again holds the same.
  void Take(int64_t count, int64_t wanted) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      const auto position = static_cast<uint64_t>(evaluator_.position() + i);
      tokens.push_back(static_cast<int32_t>((position + 1) * 2654435761u %
                                            static_cast<uint64_t>(model_.vocab())));
    }
    evaluator_.Run(tokens, count - wanted, [](const EvaluatedRows&) {});
  }

  Model& model_;
  Evaluator evaluator_;
  const WeightWork work_;
  double read_limit_ = 1, ops_limit_ = 1;
};

BenchModel DescribeModel(const Model& model) {
  BenchModel out;
  out.file = model.file().name();
  const std::optional<GgufValue> name = model.file().metadata().Find("general.name");
  const auto* text = name ? std::get_if<std::string_view>(&name->data) : nullptr;
  out.name = text != nullptr ? std::string(*text) : model.graph().name;
  for (const GgufTensor& tensor : model.file().tensors()) {
    out.bytes += tensor.data.size();
    out.parameters += tensor.elements();
  }
  out.isa = IsaName(model.isa());
  return out;
}

struct BenchRounds {
  int64_t repetitions;
  std::chrono::seconds delay;
  bool warmup;
};

// All tests once a round, so that what changes on the machine meanwhile meets each of them.
std::vector<BenchResult> RunRounds(Model& model, std::span<const BenchTest> tests,
                                   const BenchRounds& rounds) {
  BenchRunner runner(model);
  std::vector<BenchResult> results;
  for (const BenchTest& test : tests) results.push_back({test, model.threads()});
  const auto measurements = static_cast<uint64_t>(rounds.repetitions) * tests.size();
  Progress bar(fmt::format("{} threads", model.threads()), measurements);
  for (int64_t round = rounds.warmup ? -1 : 0; round < rounds.repetitions; ++round) {
    if (round >= 0) runner.MeasureLimits();
    for (BenchResult& result : results) {
      if (round >= 0) std::this_thread::sleep_for(rounds.delay);
      ThrowIfInterrupted();
      runner.Prepare(result.test);
      // A warm-up need not be long.
      BenchTest test = result.test;
      if (round < 0) test.gen = std::min<int64_t>(test.gen, 2);
      const double seconds = runner.Measure(test);
      if (round < 0) continue;
      runner.Account(seconds, result);
      bar.Add(1);
    }
  }
  return results;
}

}  // namespace

int RunBench(const OptionValues& options, Positional) {
  const std::vector<BenchTest> tests = ReadTests(options);
  LoadOptions load = ReadLoadOptions(options);
  for (const BenchTest& test : tests) {
    load.context = std::max(load.context, test.depth + test.prompt + test.gen);
  }
  const BenchRounds rounds = {options.Get<int64_t>(Opt::kRepetitions),
                              std::chrono::seconds(options.Get<int64_t>(Opt::kDelay)),
                              options.Get<bool>(Opt::kWarmup)};
  BenchModel description;
  std::vector<BenchResult> results;
  for (int64_t threads : options.Get<std::vector<int64_t>>(Opt::kBenchThreads)) {
    load.threads = static_cast<int>(std::max<int64_t>(0, threads));
    auto model = OpenWithProgress<Model>(load);
    if (!model) continue;
    description = DescribeModel(*model);
    for (BenchResult& result : RunRounds(*model, tests, rounds)) {
      results.push_back(std::move(result));
    }
  }
  if (results.empty()) return 0;
  const bool json = options.Get<bool>(Opt::kJson);
  Print(BenchTable(json ? "json" : options.Get<std::string>(Opt::kBenchOutput), description,
                   results));
  if (options.Given(Opt::kPlot)) {
    AtomicFile file(options.Get<std::string>(Opt::kPlot));
    file.Write(BenchSvg(description, results));
    file.Commit();
  }
  return 0;
}

}  // namespace lockstep
