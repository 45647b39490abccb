#include <boost/json.hpp>
#include <cmath>
#include <cstring>

#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/perplexity.h"
#include "gguf/safetensors.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

constexpr int64_t kDefaultWindow = 512;  // llama.cpp's

WindowOptions ReadWindowOptions(const OptionValues& options) {
  WindowOptions windows;
  const int64_t length = options.Get<int64_t>(Opt::kContext);
  windows.length = length == 0 ? kDefaultWindow : length;
  windows.mode = options.Choice<WindowMode>(Opt::kPplMode);
  windows.stride = options.Get<int64_t>(Opt::kPplStride);
  windows.max_windows = options.Get<int64_t>(Opt::kChunks);
  windows.bos = options.Get<bool>(Opt::kBos);
  return windows;
}

// Logits of an earlier run: `tokens` int32 [w, c] and `logits` f32 [w, s, v], the last s rows that
// have a token after them in each window.
class BaseFile {
 public:
  explicit BaseFile(const std::string& path)
      : file_(Safetensors::Open(path)),
        tokens_(file_.Require("tokens")),
        logits_(file_.Require("logits")) {
    const bool types = tokens_.type->name == "I32" && logits_.type->name == "F32";
    const bool shapes = tokens_.shape.size() == 2 && logits_.shape.size() == 3 &&
                        tokens_.shape[0] == logits_.shape[0] && tokens_.shape[0] > 0;
    if (!types || !shapes || logits_.shape[1] == 0 || logits_.shape[1] >= tokens_.shape[1]) {
      throw Refused("{}: expected tokens I32 [w, c] and logits F32 [w, s, v] with s below c",
                    Printable(path, 4096));
    }
  }

  int64_t length() const { return static_cast<int64_t>(tokens_.shape[1]); }

  Windows windows(int64_t max_windows, int64_t vocab) const {
    if (static_cast<int64_t>(logits_.shape[2]) != vocab) {
      throw Refused("{}: logits: expected {} tokens, those of the model, found {}",
                    Printable(file_.name(), 4096), vocab, logits_.shape[2]);
    }
    Windows windows;
    windows.length = length();
    windows.first_scored = windows.length - 1 - static_cast<int64_t>(logits_.shape[1]);
    uint64_t count = tokens_.shape[0];
    if (max_windows >= 0) count = std::min(count, static_cast<uint64_t>(max_windows));
    windows.tokens.resize(count * tokens_.shape[1]);
    std::memcpy(windows.tokens.data(), tokens_.data.data(), windows.tokens.size() * 4);
    for (int32_t token : windows.tokens) {
      if (token >= 0 && token < vocab) continue;
      throw Refused("{}: tokens: expected ids below {}, found {}", Printable(file_.name(), 4096),
                    vocab, token);
    }
    return windows;
  }

  // Rows of one window, from scored row `first` on. [rows, v]
  std::vector<float> Rows(int64_t window, int64_t first, int64_t rows) const {
    const size_t width = logits_.shape[2];
    const size_t at = static_cast<size_t>(window) * logits_.shape[1] + static_cast<size_t>(first);
    std::vector<float> values(static_cast<size_t>(rows) * width);
    std::memcpy(values.data(), logits_.data.data() + at * width * 4, values.size() * 4);
    for (float value : values) {
      if (std::isfinite(value)) continue;
      throw Refused("{}: logits: expected finite numbers, found {} in window {}",
                    Printable(file_.name(), 4096), value, window);
    }
    return values;
  }

 private:
  Safetensors file_;
  const SafetensorsTensor& tokens_;
  const SafetensorsTensor& logits_;
};

// What BaseFile reads.
std::vector<SafetensorsPlan> PlanBaseFile(const Windows& windows, int64_t vocab) {
  const auto count = static_cast<uint64_t>(windows.count());
  const auto scored = static_cast<uint64_t>(windows.scored());
  Log(LogLevel::kInfo, "--kl-base: {:.2f} GB of logits",
      static_cast<double>(count * scored) * static_cast<double>(vocab) * 4e-9);
  return {{"tokens", "I32", {count, static_cast<uint64_t>(windows.length)}},
          {"logits", "F32", {count, scored, static_cast<uint64_t>(vocab)}}};
}

// All sums of one run.
struct PplSums {
  Mean loss;        // -ln p of the token that came
  Mean kl;          // against the base
  Mean log_ratio;   // ln p_base - ln p of the token that came
  Mean difference;  // p - p_base of the token that came
  Mean same_top;
  double largest_kl = 0;

  void Add(const TokenDivergence& token) {
    loss.Add(-token.logprob);
    kl.Add(token.kl);
    largest_kl = std::max(largest_kl, token.kl);
    log_ratio.Add(token.base_logprob - token.logprob);
    difference.Add(std::exp(token.logprob) - std::exp(token.base_logprob));
    same_top.Add(token.same_top ? 1 : 0);
  }
  double perplexity() const { return std::exp(loss.mean()); }
  double perplexity_error() const { return perplexity() * loss.error(); }
  double ratio() const { return std::exp(log_ratio.mean()); }
};

class PplRun {
 public:
  PplRun(Model& model, const Windows& windows, const BaseFile* base, const std::string& save_to)
      : evaluator_(model), windows_(windows), base_(base) {
    if (save_to.empty()) return;
    saved_.emplace(save_to, PlanBaseFile(windows, model.vocab()));
    saved_->Append(0, std::as_bytes(std::span(windows.tokens)));
  }

  PplSums Run() {
    const auto rows = windows_.length - 1;
    Progress bar("perplexity", static_cast<uint64_t>(windows_.count() * rows),
                 {.unit = ProgressUnit::kTokens});
    for (int64_t window = 0; window < windows_.count(); ++window) {
      RunWindow(evaluator_, windows_, window,
                [&](const EvaluatedRows& rows_here, std::span<const int32_t> next) {
                  Take(window, rows_here, next);
                  bar.Set(static_cast<uint64_t>(window * rows + rows_here.first + rows_here.rows));
                });
      const std::string running =
          fmt::format("perplexity {:.4f} +- {:.4f}", sums_.perplexity(), sums_.perplexity_error());
      bar.SetLabel(running);
      Log(LogLevel::kDebug, "[{}/{}] {}", window + 1, windows_.count(), running);
    }
    if (saved_) saved_->Commit();
    return sums_;
  }

 private:
  void Take(int64_t window, const EvaluatedRows& rows, std::span<const int32_t> next) {
    Model& model = evaluator_.model();
    if (saved_) saved_->Append(1, std::as_bytes(rows.logits));
    if (base_ == nullptr) {
      for (const TokenScore& score : ScoreRows(model, rows.logits, next)) {
        sums_.loss.Add(-score.logprob);
      }
      return;
    }
    const std::vector<float> base =
        base_->Rows(window, rows.first - windows_.first_scored, rows.rows);
    for (const TokenDivergence& token : DivergeRows(model, base, rows.logits, next)) {
      sums_.Add(token);
    }
  }

  Evaluator evaluator_;
  const Windows& windows_;
  const BaseFile* base_;
  std::optional<SafetensorsWriter> saved_;
  PplSums sums_;
};

void PrintJson(const PplSums& sums, const Windows& windows, bool compared) {
  boost::json::object out = {{"perplexity", sums.perplexity()},
                             {"error", sums.perplexity_error()},
                             {"tokens", sums.loss.count()},
                             {"windows", windows.count()},
                             {"window_tokens", windows.length}};
  if (compared) {
    out["mean_kl"] = sums.kl.mean();
    out["mean_kl_error"] = sums.kl.error();
    out["largest_kl"] = sums.largest_kl;
    out["rms_probability_difference"] = sums.difference.rms();
    out["mean_probability_difference"] = sums.difference.mean();
    out["same_top"] = sums.same_top.mean();
    out["perplexity_ratio"] = sums.ratio();
    out["perplexity_ratio_error"] = sums.ratio() * sums.log_ratio.error();
  }
  Print(JsonText(out) + "\n");
}

void PrintText(const PplSums& sums, const Windows& windows, bool compared) {
  Print(fmt::format("perplexity {:.4f} +- {:.4f}, {} tokens in {} windows of {}\n",
                    sums.perplexity(), sums.perplexity_error(), sums.loss.count(), windows.count(),
                    windows.length));
  if (!compared) return;
  Print(fmt::format("mean KL divergence {:.6f} +- {:.6f}, largest {:.6f}\n", sums.kl.mean(),
                    sums.kl.error(), sums.largest_kl));
  Print(fmt::format("probability of the token that came: {:.3f} % RMS difference, {:+.3f} % mean\n",
                    100 * sums.difference.rms(), 100 * sums.difference.mean()));
  Print(fmt::format("same top token {:.2f} %\n", 100 * sums.same_top.mean()));
  Print(fmt::format("perplexity over that of the base {:.6f} +- {:.6f}\n", sums.ratio(),
                    sums.ratio() * sums.log_ratio.error()));
}

}  // namespace

int RunPpl(const OptionValues& options, Positional) {
  std::string save_to = options.GetOr<std::string>(Opt::kKlBase, "");
  std::string compare_to = options.GetOr<std::string>(Opt::kKlFrom, "");
  if (options.Get<bool>(Opt::kKlDivergence)) {
    if (save_to.empty()) throw Refused("--kl-divergence: expected --kl-base FILE beside it");
    std::swap(save_to, compare_to);
  }
  std::optional<BaseFile> base;
  std::string text;
  WindowOptions cut = ReadWindowOptions(options);
  if (compare_to.empty()) {
    text = ReadFileOrStdin(options.Require<std::string>(Opt::kFile));
  } else {
    base.emplace(compare_to);
    cut.length = base->length();
  }
  LoadOptions load = ReadLoadOptions(options);
  load.context = cut.length;
  Windows windows;
  load.accept = [&](const Model& model) {
    windows = base ? base->windows(cut.max_windows, model.vocab())
                   : CutWindows(text, model.tokenizer(), cut);
    if (windows.count() == 0) throw Refused("--chunks: expected at least one, found 0");
  };
  auto model = OpenWithProgress<Model>(load);
  if (!model) return 0;

  const PplSums sums = PplRun(*model, windows, base ? &*base : nullptr, save_to).Run();
  if (options.Get<bool>(Opt::kJson)) {
    PrintJson(sums, windows, base.has_value());
  } else {
    PrintText(sums, windows, base.has_value());
  }
  return 0;
}

}  // namespace lockstep
