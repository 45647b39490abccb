// The vocabulary and the chat template of a checkpoint as keys of a file.
#pragma once

#include "convert/checkpoint.h"
#include "convert/keys.h"

namespace lockstep {

// Sets tokenizer.ggml.* and tokenizer.chat_template as llama.cpp writes them, so that reading them
// back gives the ids of the checkpoint's own tokenizer. `size`: rows of the embedding; ids beyond the
// vocabulary become unused tokens. Refused where the folder has no tokenizer or one of more ids.
void SetTokenizerKeys(const Checkpoint& checkpoint, uint64_t size, Keys& keys);

// Whether the folder has none.
bool LacksTokenizer(const Checkpoint& checkpoint);

// Sets general.sampling.* from generation_config.json, where there is one that samples.
void SetSamplingKeys(const Checkpoint& checkpoint, Keys& keys);

}  // namespace lockstep
