#include "convert/converters.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {

// X(function): Converter ConvertNAME() of a file in archs/.
#define LOCKSTEP_FOR_EACH_CONVERTER(X) \
  X(Cohere2)                           \
  X(Cohere2Moe)                        \
  X(Deepseek2)                         \
  X(Deepseek3)                         \
  X(Deepseek32)                        \
  X(Deepseek4)                         \
  X(Dflash)                            \
  X(Ernie45Moe)                        \
  X(Flint)                             \
  X(Gemma2)                            \
  X(Gemma3)                            \
  X(Gemma4)                            \
  X(Gemma4Assistant)                   \
  X(Glm4)                              \
  X(Glm4Moe)                           \
  X(Glm4MoeLite)                       \
  X(Glm5Next)                          \
  X(GlmDsa)                            \
  X(GptOss)                            \
  X(Granite)                           \
  X(GraniteHybrid)                     \
  X(HunyuanDense)                      \
  X(HunyuanMoe)                        \
  X(Laguna)                            \
  X(Lfm2)                              \
  X(Llama)                             \
  X(Mellum)                            \
  X(Mimo2)                             \
  X(MiniMaxM2)                         \
  X(Mistral3)                          \
  X(Mistral4)                          \
  X(Mixtral)                           \
  X(MuseGlimmer)                       \
  X(Olmo2)                             \
  X(Olmo3)                             \
  X(Phi3)                              \
  X(Qwen2)                             \
  X(Qwen2Moe)                          \
  X(Qwen3)                             \
  X(Qwen35)                            \
  X(Qwen35Moe)                         \
  X(Qwen3Moe)                          \
  X(Qwen3Next)                         \
  X(Qwen4Exp)                          \
  X(SeedOss)                           \
  X(Smollm3)                           \
  X(Step35)                            \
  X(TwoSidedDflash)

#define LOCKSTEP_DECLARE(name) Converter Convert##name();
LOCKSTEP_FOR_EACH_CONVERTER(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

std::span<const Converter> Converters() {
#define LOCKSTEP_ROW(name) Convert##name(),
  static const std::vector<Converter> rows = {LOCKSTEP_FOR_EACH_CONVERTER(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW
  return rows;
}

namespace {

bool Contains(const std::vector<std::string_view>& list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

}  // namespace

const Converter& FindConverter(const Config& config) {
  const std::vector<std::string> classes = config.Strings("architectures");
  const std::string type = config.StringOr("model_type", "");
  const auto accepted = [&](const Converter& row) {
    return row.accepts == nullptr || row.accepts(config);
  };
  for (const std::string& name : classes) {
    for (const Converter& row : Converters()) {
      if (Contains(row.classes, name) && accepted(row)) return row;
    }
  }
  for (const Converter& row : Converters()) {
    if (classes.empty() && Contains(row.model_types, type) && accepted(row)) return row;
  }
  std::vector<std::string_view> known;
  for (const Converter& row : Converters()) {
    known.insert(known.end(), row.classes.begin(), row.classes.end());
  }
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  config.Refuse("architectures", fmt::format("expected one of {}, found {}", fmt::join(known, ", "),
                                             Printable(classes.empty() ? type : classes[0])));
}

}  // namespace lockstep
