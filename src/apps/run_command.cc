#include "apps/answer.h"
#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/state_files.h"
#include "apps/terminal.h"
#include "apps/trace_report.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace lockstep {

int RunRun(const OptionValues& options, Positional) {
  const SamplingParams sampling = ReadSamplingParams(options);
  const bool goes_on = options.Given(Opt::kLoadState);
  const bool given = options.Given(Opt::kPrompt) || options.Given(Opt::kFile);
  const std::string text = goes_on && !given ? "" : ReadInputText(options);
  RequestOptions request;
  LoadOptions load = ReadLoadOptions(options);
  load.trace = options.Get<bool>(Opt::kTrace);
  load.accept = [&](const Model& model) {
    request.prompt =
        model.tokenizer().Encode(text, {.add_special = !goes_on, .parse_special = true});
    if (goes_on) return;
    if (const auto refusal = PromptRefusal(model, request.prompt)) throw *refusal;
  };
  auto engine = OpenWithProgress<Engine>(load);
  if (!engine) return 0;
  const std::vector<int32_t> state = LoadStateFiles(options, *engine);
  request.prompt.insert(request.prompt.begin(), state.begin(), state.end());
  request.sampling = sampling;
  request.max_tokens = std::max<int64_t>(-1, options.Get<int64_t>(Opt::kPredict));
  request.ignore_eos = options.Get<bool>(Opt::kIgnoreEos);
  request.show_special = options.Get<bool>(Opt::kSpecial);
  if (options.Given(Opt::kReversePrompt))
    request.stop = options.Get<std::vector<std::string>>(Opt::kReversePrompt);
  if (options.Get<bool>(Opt::kDisplayPrompt)) Print(text);
  auto submitted = engine->Submit(std::move(request)).value();
  StreamAnswer(*submitted);
  const Summary& summary = submitted->summary();
  if (summary.reason == FinishReason::kError) throw Failed("{}", summary.error);
  if (summary.reason == FinishReason::kLength &&
      summary.prompt_tokens + summary.generated_tokens >= engine->model().context()) {
    Log(LogLevel::kWarning,
        "the answer ends where the context is full, at {} positions; --ctx-size makes room for "
        "more",
        engine->model().context());
  }
  SaveStateFiles(options, *engine, summary);
  if (load.trace) fmt::print(stderr, "{}", TraceReport(engine->model()));
  if (options.Get<bool>(Opt::kShowTimings))
    Log(LogLevel::kInfo, "{}", SpeedReport(*engine, summary));
  ThrowIfInterrupted();
  return 0;
}

}  // namespace lockstep
