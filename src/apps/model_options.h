// From options to what the engine takes.
#pragma once

#include <memory>

#include "apps/options.h"
#include "engine/engine.h"

namespace lockstep {

// What the options say of a model: file, context, batch, cache, threads, ranks. `sequences`: when --parallel does not say.
LoadOptions ReadLoadOptions(const OptionValues& options, int64_t sequences = 1);

// How ranks share it: --ranks, --split-mode, --tensor-split, --expert-split.
void ReadSplit(const OptionValues& options, LoadOptions& load);

// The sampling options of a generating command.
SamplingParams ReadSamplingParams(const OptionValues& options);

// Opens a model with a progress bar on the terminal. A process that follows another (Model::leads) does so until that ends, and gets null.
template <typename Opened>
std::unique_ptr<Opened> OpenWithProgress(LoadOptions options);
extern template std::unique_ptr<Engine> OpenWithProgress<Engine>(LoadOptions options);
extern template std::unique_ptr<Model> OpenWithProgress<Model>(LoadOptions options);

// "12 tokens in 0.10 s, 120.0 tokens/s".
std::string SpeedText(int64_t tokens, double seconds);

}  // namespace lockstep
