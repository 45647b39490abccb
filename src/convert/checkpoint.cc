#include "convert/checkpoint.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "convert/packed.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxConfigBytes = 16u << 20;

// What stands around the text model in multimodal releases, and what it is here.
constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
    {"model.language_model.model.", "model."},
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.", ""},
};

std::string PlainName(std::string_view name) {
  for (const auto& [prefix, plain] : kPrefixes) {
    if (name.starts_with(prefix)) {
      return std::string(plain) + std::string(name.substr(prefix.size()));
    }
  }
  return std::string(name);
}

bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Advice where there are weights, but not as safetensors.
void RefuseOtherWeights(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".bin" && ending != ".pt" && ending != ".pth") continue;
    throw Refused(
        "{}: expected safetensors, found {}: save the model as safetensors first (transformers: "
        "save_pretrained)",
        Printable(folder.string(), 4096), Printable(entry.path().filename().string()));
  }
}

Safetensors OpenWeights(const std::filesystem::path& folder) {
  if (!Exists(folder / "model.safetensors") && !Exists(folder / "model.safetensors.index.json")) {
    RefuseOtherWeights(folder);
  }
  return Safetensors::Open(folder.string());
}

}  // namespace

Checkpoint Checkpoint::Open(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    throw Refused("{}: expected the folder of a checkpoint, found none", Printable(folder, 4096));
  }
  const std::string file = (path / "config.json").string();
  Config config = Config::Parse(file, ReadFile(file, kMaxConfigBytes));
  return Checkpoint(folder, std::move(config), OpenWeights(path));
}

Checkpoint::Checkpoint(std::string folder, Config config, Safetensors weights)
    : folder_(std::move(folder)), config_(std::move(config)), weights_(std::move(weights)) {
  for (const std::string& warning : weights_.warnings()) Log(LogLevel::kWarning, "{}", warning);
  ListTensors();
}

void Checkpoint::ListTensors() {
  // Endings of scales, of the numbers that they scale, and of what both are together.
  struct Scales {
    std::string_view scales, numbers, both;
  };
  static constexpr Scales kScales[] = {{"_scale_inv", "", ""},
                                       {"_scale", "", ""},
                                       {"_scales", "_blocks", ""},
                                       {".scale", ".weight", ".weight"}};
  const auto numbers_of = [&](const std::string& name) -> std::string {
    for (const auto& [ending, numbers, both] : kScales) {
      if (!name.ends_with(ending)) continue;
      const std::string stem = name.substr(0, name.size() - ending.size());
      const SafetensorsTensor* coded = weights_.Find(stem + std::string(numbers));
      if (coded != nullptr && coded->type->bits == 8) return stem + std::string(both);
    }
    return "";
  };
  for (const SafetensorsTensor& tensor : weights_.tensors()) {
    if (const std::string stem = numbers_of(tensor.name); !stem.empty()) {
      tensors_[PlainName(stem)].scales = &tensor;
    } else if (tensor.name.ends_with("_blocks") &&
               weights_.Find(tensor.name.substr(0, tensor.name.size() - 7) + "_scales")) {
      tensors_[PlainName(tensor.name.substr(0, tensor.name.size() - 7))].numbers = &tensor;
    } else {
      Parts& parts = tensors_[PlainName(tensor.name)];
      if (parts.numbers != nullptr) {
        throw Refused("{}: {}: expected one tensor of this name, found {} too",
                      Printable(folder_, 4096), Printable(tensor.name),
                      Printable(parts.numbers->name));
      }
      parts.numbers = &tensor;
    }
  }
  for (const auto& [name, parts] : tensors_) unused_.insert(name);
}

Values Checkpoint::Read(std::string_view name) const {
  const auto found = tensors_.find(name);
  // Says which absent file of an index has it, where one has.
  if (found == tensors_.end()) return PlainValues(weights_.Require(name));
  const auto& [numbers, scales] = found->second;
  if (scales == nullptr) return PlainValues(*numbers);
  if (numbers->name.ends_with("_blocks") || IsMxFp4Pair(*numbers, *scales))
    return MxFp4Values(*numbers, *scales);
  std::vector<int64_t> block;
  if (const auto settings = config_.Find("quantization_config")) {
    block = Config(settings->path() + ".", settings->Object()).Counts("weight_block_size");
  }
  return ScaledValues(*numbers, *scales, block);
}

bool Checkpoint::HasAny(std::string_view prefix) const {
  const auto at = tensors_.lower_bound(prefix);
  return at != tensors_.end() && at->first.starts_with(prefix);
}

Values Checkpoint::Take(std::string_view name) {
  Values values = Read(name);
  Ignore(name);
  return values;
}

void Checkpoint::ReleasePages() const {
  for (const SafetensorsTensor& tensor : weights_.tensors()) weights_.Release(tensor);
}

}  // namespace lockstep
