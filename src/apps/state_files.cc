#include "apps/state_files.h"

#include <filesystem>
#include <system_error>

namespace lockstep {

std::vector<int32_t> LoadStateFiles(const OptionValues& options, Engine& engine) {
  if (options.Given(Opt::kPromptCache)) {
    const auto& path = options.Get<std::string>(Opt::kPromptCache);
    // A name that cannot be looked up is refused when the file is written.
    std::error_code error;
    if (std::filesystem::exists(path, error)) engine.LoadState(path);
  }
  if (!options.Given(Opt::kLoadState)) return {};
  return engine.LoadState(options.Get<std::string>(Opt::kLoadState));
}

void SaveStateFiles(const OptionValues& options, Engine& engine, const Summary& summary) {
  if (options.Given(Opt::kSaveState))
    engine.SaveState(summary.tokens, options.Get<std::string>(Opt::kSaveState));
  if (!options.Given(Opt::kPromptCache) || options.Get<bool>(Opt::kPromptCacheRo)) return;
  const bool all = options.Get<bool>(Opt::kPromptCacheAll);
  const auto prompt = static_cast<size_t>(summary.prompt_tokens);
  engine.SaveState(std::span(summary.tokens).first(all ? summary.tokens.size() : prompt),
                   options.Get<std::string>(Opt::kPromptCache));
}

}  // namespace lockstep
