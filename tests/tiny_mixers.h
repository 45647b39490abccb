// What tiny models have in place of attention: short convolutions, delta networks, state spaces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tiny_model.h"

namespace lockstep::test {

// The mixer of an architecture that has one, and what comes with it; whether it has one.
bool SetMixer(TinyOptions& options);
// Keys of the mixer.
void AddMixerKeys(const TinyOptions& options, TinyModel& model);
// Tensors of one layer's mixer.
void AddMixer(const TinyOptions& options,
              const std::function<void(const std::string& name, std::vector<int64_t> dims)>& add);

}  // namespace lockstep::test
