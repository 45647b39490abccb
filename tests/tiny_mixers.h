// What tiny models have in place of attention: short convolutions, delta networks, state spaces.
#pragma once

#include "tiny_model.h"

namespace lockstep::test {

// The mixer of an architecture that has one, and what comes with it; whether it has one.
bool SetMixer(TinyOptions& options);
// Keys of the mixer.
void AddMixerKeys(const TinyOptions& options, TinyModel& model);
// Tensors of one layer's mixer.
void AddMixer(const TinyOptions& options, const AddTensor& add);
// What mixes the streams around one layer's branches, where there are several.
void AddStreams(const TinyOptions& options, const AddTensor& add);

}  // namespace lockstep::test
