// A checkpoint as releases ship it: a folder with config.json, safetensors files and a tokenizer.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config.h"
#include "convert/transform.h"
#include "gguf/safetensors.h"

namespace lockstep {

// The folder, opened. Tensor names are given without what multimodal releases put around them:
// "model.language_model.layers.0..." and "language_model.model.layers.0..." are "model.layers.0...".
//
// Weights that a release stores with scales of their own are one tensor of numbers here:
//   X with X_scale_inv or X_scale: FP8 (e4m3) in blocks (quantization_config.weight_block_size), in
//     rows or whole, as DeepSeek-V3 and compressed-tensors have them
//   X_blocks with X_scales: MXFP4 (OCP Microscaling 1.0), as gpt-oss has it
class Checkpoint {
 public:
  // Refused where the folder lacks config.json or safetensors (with advice where it has other
  // weights), or one of these is damaged. Warnings about absent files are logged.
  static Checkpoint Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Config& config() const { return config_; }
  // Hyper-parameters that the architecture takes where the release leaves them out: a JSON object.
  void SetDefaults(std::string_view defaults) { config_ = config_.WithDefaults(defaults); }
  size_t tensor_count() const { return tensors_.size(); }
  // Whether there is a tensor whose name begins so.
  bool HasAny(std::string_view prefix) const;
  bool Has(std::string_view name) const { return tensors_.contains(name); }
  // The numbers of a tensor; Refused where it is absent or of a type that holds no weights. They
  // refer to this object.
  Values Read(std::string_view name) const;
  // As Read, and the tensor counts as used.
  Values Take(std::string_view name);
  // The tensor counts as used.
  void Ignore(std::string_view name) { unused_.erase(std::string(name)); }
  // Tensors that nothing took, by name.
  const std::set<std::string, std::less<>>& unused() const { return unused_; }
  // Tells the system that all bytes read so far may go.
  void ReleasePages() const;

 private:
  struct Parts {
    const SafetensorsTensor* numbers = nullptr;
    const SafetensorsTensor* scales = nullptr;  // null where the numbers stand for themselves
  };
  Checkpoint(std::string folder, Config config, Safetensors weights);
  void ListTensors();

  std::string folder_;
  Config config_;
  Safetensors weights_;
  std::map<std::string, Parts, std::less<>> tensors_;
  std::set<std::string, std::less<>> unused_;
};

}  // namespace lockstep
