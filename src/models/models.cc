#include "models/models.h"

#include "base/error.h"
#include "models/drafts.h"

namespace lockstep {

// X(function, "general.architecture")
#define LOCKSTEP_FOR_EACH_ARCHITECTURE(X) \
  X(Cohere2, "cohere2")                   \
  X(Cohere2Moe, "cohere2moe")             \
  X(Deepseek2, "deepseek2")               \
  X(Deepseek32, "deepseek32")             \
  X(Deepseek4, "deepseek4")               \
  X(Ernie45Moe, "ernie4_5-moe")           \
  X(Flint, "flint")                       \
  X(Gemma2, "gemma2")                     \
  X(Gemma3, "gemma3")                     \
  X(Gemma4, "gemma4")                     \
  X(GlmDsa, "glm-dsa")                    \
  X(Glm4, "glm4")                         \
  X(Glm4Moe, "glm4moe")                   \
  X(Glm5Next, "glm5-next")                \
  X(GptOss, "gpt-oss")                    \
  X(Granite, "granite")                   \
  X(GraniteHybrid, "granitehybrid")       \
  X(HunyuanDense, "hunyuan-dense")        \
  X(HunyuanMoe, "hunyuan-moe")            \
  X(Laguna, "laguna")                     \
  X(Lfm2, "lfm2")                         \
  X(Llama, "llama")                       \
  X(Mellum, "mellum")                     \
  X(Mimo2, "mimo2")                       \
  X(MiniMaxM2, "minimax-m2")              \
  X(Mistral3, "mistral3")                 \
  X(Deepseek2, "mistral4")                \
  X(MuseGlimmer, "muse-glimmer")          \
  X(Olmo2, "olmo2")                       \
  X(Phi3, "phi3")                         \
  X(Qwen2, "qwen2")                       \
  X(Qwen2Moe, "qwen2moe")                 \
  X(Qwen3, "qwen3")                       \
  X(Qwen35, "qwen35")                     \
  X(Qwen35Moe, "qwen35moe")               \
  X(Qwen3Moe, "qwen3moe")                 \
  X(Qwen3Next, "qwen3next")               \
  X(Qwen4Exp, "qwen4exp")                 \
  X(SeedOss, "seed_oss")                  \
  X(Smollm3, "smollm3")                   \
  X(Step35, "step35")

#define LOCKSTEP_DECLARE(function, name) Graph Build##function(const ModelSource& source);
LOCKSTEP_FOR_EACH_ARCHITECTURE(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

std::span<const Architecture> Architectures() {
#define LOCKSTEP_ROW(function, name) {name, Build##function},
  static constexpr Architecture kRows[] = {LOCKSTEP_FOR_EACH_ARCHITECTURE(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW
  return kRows;
}

Graph BuildGraph(const ModelSource& source) {
  ExpectModel(source);
  std::string known;
  for (const Architecture& row : Architectures()) {
    if (row.name == source.architecture()) return row.build(source);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Refused("{}: general.architecture: expected one of {}, found \"{}\"", Printable(source.file().name(), 4096), known,
                Printable(source.architecture()));
}

Graph BuildNextTokenGraph(const ModelSource& source, const Graph& model) {
  constexpr std::string_view kKey = "nextn_predict_layers";
  if (source.next_token_blocks() == 0) source.Refuse(kKey, "expected a block that predicts the token after the next, found none");
  ModelOptions options = source.options();
  options.beside = &model;
  Graph graph = BuildGraph(ModelSource(source.file(), options));
  if (graph.input == kNoValue) source.Refuse(kKey, "expected a block as one of this architecture is known here, found one that is not");
  return graph;
}

}  // namespace lockstep
