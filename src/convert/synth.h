// Files of true shape with random weights, for benchmarks and plans: the hyper-parameters are those
// of a published model, the tensors are what its graph asks for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// One published model. Sizes stand in convert/synth_table.cc.
struct SynthModel {
  std::string_view architecture;
  std::string_view size;   // "8b", "30b-a3b"
  std::string_view model;  // whose sizes these are
  uint32_t vocab;
  // Keys without the architecture's prefix, "name=value" separated by blanks. 1: a number, 1.0: a
  // float, true: a bool, 1,2: an array, "text": a string.
  std::string_view keys;
  // Tensors beyond those that every file of the architecture has, without ".weight", separated by
  // blanks: "output", or "blk:attn_q.bias" in every layer, "blk0-2:ffn_gate" in layers 0 to 2.
  std::string_view extras;
};

std::span<const SynthModel> SynthModels();

struct SynthOptions {
  std::string architecture, size, type = "q4_0";
  std::string output;  // appears whole or not at all
  uint64_t seed = 1;
  bool hollow = false;  // weights are left out: the file has a hole in their place
  bool dry_run = false;
};

struct SynthResult {
  std::string_view model;
  uint64_t tensors = 0, weights = 0, bytes = 0;
};

// Writes the file. The same options give the same bytes. Refused in one line naming the known
// architectures, or the known sizes of one, or the types.
SynthResult WriteSynth(const SynthOptions& options);

}  // namespace lockstep
