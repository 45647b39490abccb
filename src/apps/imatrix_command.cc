#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/log.h"
#include "base/progress.h"
#include "comm/communicator.h"
#include "engine/importance.h"
#include "engine/perplexity.h"

namespace lockstep {
namespace {

constexpr int64_t kDefaultChunk = 512;  // tokens, llama.cpp's

// What was read with --in-file, all together.
std::optional<Imatrix> ReadEarlier(const OptionValues& options) {
  std::optional<Imatrix> sum;
  for (const std::string& path :
       options.GetOr<std::vector<std::string>>(Opt::kInFiles, std::vector<std::string>{})) {
    Imatrix next = Imatrix::Read(path);
    if (sum) {
      sum->Merge(next, path);
    } else {
      sum = std::move(next);
    }
  }
  return sum;
}

Imatrix Together(const std::optional<Imatrix>& earlier, const Imatrix& collected) {
  if (!earlier) return collected;
  Imatrix sum = *earlier;
  sum.Merge(collected, "--in-file");
  return sum;
}

// Experts that no token chose have no importance: worth saying.
void WarnOfGaps(const Imatrix& matrix) {
  for (const auto& [name, entry] : matrix.entries()) {
    const auto unseen = std::ranges::count(entry.counts, 0.0);
    if (unseen == 0) continue;
    Log(LogLevel::kWarning, "{}: {} of {} experts were never used by this text", Printable(name),
        unseen, entry.counts.size());
  }
}

void PrintStatistics(const Imatrix& matrix) {
  Print(fmt::format("{:<40} {:>8} {:>12} {:>12} {:>12}\n", "matrix", "rows", "mean", "largest",
                    "spread"));
  for (const auto& [name, entry] : matrix.entries()) {
    const std::vector<float> means = Imatrix::Means(entry);
    double sum = 0, logs = 0;
    for (float mean : means) {
      sum += mean;
      logs += std::log(std::max(static_cast<double>(mean), 1e-30));
    }
    const auto n = static_cast<double>(means.size());
    // The arithmetic over the geometric mean: 1 where all columns count alike.
    const double spread = sum > 0 ? sum / n / std::exp(logs / n) : 1;
    Print(fmt::format("{:<40} {:>8.0f} {:>12.5g} {:>12.5g} {:>12.4g}\n", Printable(name),
                      *std::ranges::max_element(entry.counts), sum / n,
                      *std::ranges::max_element(means), spread));
  }
}

class ImatrixRun {
 public:
  ImatrixRun(const OptionValues& options, Model& model, const std::optional<Imatrix>& earlier)
      : options_(options),
        earlier_(earlier),
        output_(options.Require<std::string>(Opt::kOutput)),
        collector_(model, {.output = options.Get<bool>(Opt::kProcessOutput)}),
        evaluator_(model) {
    collector_.matrix().datasets = {options.Get<std::string>(Opt::kFile)};
  }

  void Run(const Windows& windows) {
    const int64_t every = options_.Get<int64_t>(Opt::kSaveFrequency);
    const bool score = !options_.Get<bool>(Opt::kNoPpl);
    collector_.matrix().chunk_tokens = static_cast<uint32_t>(windows.length);
    Progress bar("imatrix", static_cast<uint64_t>(windows.count() * windows.length),
                 {.unit = ProgressUnit::kTokens});
    for (int64_t window = options_.Get<int64_t>(Opt::kFromChunk); window < windows.count();
         ++window) {
      evaluator_.Rewind(0);
      // All rows are asked for: what nobody asks for is not computed, and not seen.
      evaluator_.Run(windows.window(window), 0, [&](const EvaluatedRows& rows) {
        if (score) Score(windows, window, rows);
      });
      collector_.matrix().chunks += 1;
      bar.Set(static_cast<uint64_t>((window + 1) * windows.length));
      if (score) bar.SetLabel(fmt::format("imatrix, perplexity {:.4f}", std::exp(loss_.mean())));
      if (every > 0 && collector_.matrix().chunks % every == 0) {
        Together(earlier_, collector_.matrix())
            .Write(fmt::format("{}.at_{}", output_, collector_.matrix().chunks));
      }
    }
  }

  void Write() {
    const Imatrix all = Together(earlier_, collector_.matrix());
    WarnOfGaps(all);
    all.Write(output_);
    std::string text =
        fmt::format("{}: {} matrices from {} pieces of {} tokens", Printable(output_, 4096),
                    all.entries().size(), all.chunks, all.chunk_tokens);
    if (loss_.count() > 0) {
      text += fmt::format(", perplexity {:.4f} +- {:.4f}", std::exp(loss_.mean()),
                          std::exp(loss_.mean()) * loss_.error());
    }
    Print(text + "\n");
  }

 private:
  void Score(const Windows& windows, int64_t window, const EvaluatedRows& rows) {
    const auto tokens = windows.window(window);
    const int64_t first = std::max(rows.first, windows.first_scored);
    const int64_t last = std::min(rows.first + rows.rows, windows.length - 1);
    if (first >= last) return;
    Model& model = evaluator_.model();
    const auto skipped = static_cast<size_t>((first - rows.first) * model.vocab());
    const auto next =
        tokens.subspan(static_cast<size_t>(first) + 1, static_cast<size_t>(last - first));
    for (const TokenScore& score : ScoreRows(model, rows.logits.subspan(skipped), next)) {
      loss_.Add(-score.logprob);
    }
  }

  const OptionValues& options_;
  const std::optional<Imatrix>& earlier_;
  std::string output_;
  ImportanceCollector collector_;
  Evaluator evaluator_;
  Mean loss_;
};

}  // namespace

int RunImatrix(const OptionValues& options, Positional) {
  const std::optional<Imatrix> earlier = ReadEarlier(options);
  if (options.Get<bool>(Opt::kShowStatistics)) {
    if (!earlier) throw Refused("--show-statistics: expected --in-file FILE beside it");
    PrintStatistics(*earlier);
    return 0;
  }
  if (!options.Given(Opt::kFile)) {
    // Files are only put together.
    if (!earlier) throw Refused("imatrix: expected a text (-f FILE), or --in-file FILE");
    const auto output = options.Require<std::string>(Opt::kOutput);
    earlier->Write(output);
    Print(fmt::format("{}: {} matrices from {} pieces\n", Printable(output, 4096),
                      earlier->entries().size(), earlier->chunks));
    return 0;
  }
  // The others have left: nobody would meet this one.
  if (Processes() > 1) throw Refused("imatrix: expected one process, found {}", Processes());
  const std::string text = ReadFileOrStdin(options.Get<std::string>(Opt::kFile));
  WindowOptions cut;
  const int64_t length = options.Get<int64_t>(Opt::kContext);
  cut.length = length == 0 ? kDefaultChunk : length;
  cut.bos = options.Get<bool>(Opt::kBos);
  const int64_t chunks = options.Get<int64_t>(Opt::kChunks);
  const int64_t from = options.Get<int64_t>(Opt::kFromChunk);
  cut.max_windows = chunks < 0 ? -1 : from + chunks;
  LoadOptions load = ReadLoadOptions(options);
  load.context = cut.length;
  const auto model = OpenWithProgress<Model>(load);
  const Windows windows = CutWindows(text, model->tokenizer(), cut);
  if (windows.count() <= from) {
    throw Refused("--chunks: expected at least one, found 0 of {}", windows.count());
  }
  ImatrixRun run(options, *model, earlier);
  run.Run(windows);
  run.Write();
  return 0;
}

}  // namespace lockstep
