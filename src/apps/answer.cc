#include "apps/answer.h"

#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/bandwidth.h"
#include "base/interrupt.h"

namespace lockstep {

std::string StreamAnswer(Request& request) {
  std::string answer;
  Event event;
  while (true) {
    const Request::State state = request.Next(&event, std::chrono::milliseconds(50));
    if (Interrupted()) request.Cancel();
    if (state == Request::State::kFinished) break;
    if (state == Request::State::kWaiting || event.text.empty()) continue;
    answer += event.text;
    Print(event.text);
    FlushOutput();
  }
  answer += request.summary().tail;
  Print(request.summary().tail + "\n");
  FlushOutput();
  return answer;
}

std::string SpeedReport(Engine& engine, const Summary& summary) {
  std::string text =
      fmt::format("prompt {}",
                  SpeedText(summary.prompt_tokens - summary.cached_tokens, summary.prompt_seconds));
  const int64_t steps = summary.generated_tokens - 1;
  if (steps > 0 && summary.generate_seconds > 0) {
    const double positions =
        static_cast<double>(summary.prompt_tokens) + static_cast<double>(steps) / 2;
    const double bytes = static_cast<double>(engine.model().bytes_per_token()) +
                         positions * static_cast<double>(engine.model().kv_bytes_per_position());
    const double speed = bytes * static_cast<double>(steps) / summary.generate_seconds;
    const double limit = MeasureReadBandwidth(engine.team());
    text += fmt::format("; answer {}, {:.1f} GB/s, {:.0f} % of the measured {:.1f} GB/s",
                        SpeedText(steps, summary.generate_seconds), speed / 1e9,
                        100 * speed / limit, limit / 1e9);
  }
  return fmt::format("{}; logits {}", text, summary.logits_hash.substr(0, 16));
}

}  // namespace lockstep
