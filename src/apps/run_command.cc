#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/bandwidth.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace lockstep {
namespace {

// Prints the answer as it comes; Ctrl-C ends it.
void StreamAnswer(Request& request) {
  Event event;
  while (true) {
    const Request::State state = request.Next(&event, std::chrono::milliseconds(50));
    if (Interrupted()) request.Cancel();
    if (state == Request::State::kFinished) break;
    if (state == Request::State::kWaiting || event.text.empty()) continue;
    Print(event.text);
    FlushOutput();
  }
  Print(request.summary().tail + "\n");
  FlushOutput();
}

// The closing line: speeds, how near decoding came to what memory allows, and the hash of the last logits.
void ReportRun(Engine& engine, const Summary& summary) {
  std::string text = fmt::format("prompt {}", SpeedText(summary.prompt_tokens - summary.cached_tokens, summary.prompt_seconds));
  const int64_t steps = summary.generated_tokens - 1;
  if (steps > 0 && summary.generate_seconds > 0) {
    const double positions = static_cast<double>(summary.prompt_tokens) + static_cast<double>(steps) / 2;
    const double bytes = static_cast<double>(engine.model().bytes_per_token()) +
                         positions * static_cast<double>(engine.model().kv_bytes_per_position());
    const double speed = bytes * static_cast<double>(steps) / summary.generate_seconds;
    const double limit = MeasureReadBandwidth(engine.team());
    text += fmt::format("; answer {}, {:.1f} GB/s, {:.0f} % of the measured {:.1f} GB/s",
                        SpeedText(steps, summary.generate_seconds), speed / 1e9, 100 * speed / limit, limit / 1e9);
  }
  Log(LogLevel::kInfo, "{}; logits {}", text, summary.logits_hash.substr(0, 16));
}

}  // namespace

int RunRun(const OptionValues& options, Positional) {
  const SamplingParams sampling = ReadSamplingParams(options);
  const std::string text = ReadInputText(options);
  auto engine = OpenWithProgress<Engine>(ReadLoadOptions(options));
  RequestOptions request;
  request.prompt = engine->tokenizer().Encode(text, {.add_special = true, .parse_special = true});
  request.sampling = sampling;
  request.max_tokens = std::max<int64_t>(-1, options.Get<int64_t>(Opt::kPredict));
  request.ignore_eos = options.Get<bool>(Opt::kIgnoreEos);
  request.show_special = options.Get<bool>(Opt::kSpecial);
  if (options.Given(Opt::kReversePrompt)) request.stop = options.Get<std::vector<std::string>>(Opt::kReversePrompt);
  if (options.Get<bool>(Opt::kDisplayPrompt)) Print(text);
  auto submitted = engine->Submit(std::move(request)).value();
  StreamAnswer(*submitted);
  const Summary& summary = submitted->summary();
  if (summary.reason == FinishReason::kError) throw Failed("{}", summary.error);
  if (options.Get<bool>(Opt::kShowTimings)) ReportRun(*engine, summary);
  ThrowIfInterrupted();
  return 0;
}

}  // namespace lockstep
