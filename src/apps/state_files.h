// --load-state and --save-state, and llama.cpp's --prompt-cache over the same files.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/options.h"
#include "engine/engine.h"

namespace lockstep {

// Before the first request: what files hold is put into the engine's cache. Returns the tokens of --load-state, none where it is not given. A file of
// --prompt-cache that does not exist is none yet. Throws as Engine::LoadState does.
std::vector<int32_t> LoadStateFiles(const OptionValues& options, Engine& engine);

// After an answer. Throws as Engine::SaveState does.
void SaveStateFiles(const OptionValues& options, Engine& engine, const Summary& summary);

}  // namespace lockstep
