// Collectives of every architecture against what the theory of its blocks says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "exec/weights.h"
#include "gguf/temp_folder.h"
#include "models/models.h"
#include "shard/shard.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

// Kinds in order, layer by layer, and behind a bar those of no layer: "rr rr | g".
std::string Kinds(const ShardedGraph& sharded) {
  std::map<int32_t, std::string> layers;
  for (const Collective& collective : sharded.collectives) {
    static constexpr char kLetters[] = {'r', 'g', 's'};
    layers[collective.layer] += kLetters[static_cast<size_t>(collective.kind)];
  }
  std::string text;
  for (const auto& [layer, kinds] : layers) {
    if (layer >= 0) text += kinds + " ";
  }
  return text + "| " + layers[-1];
}

TEST(Collectives, Print) {
  TempFolder folder;
  for (const Architecture& architecture : Architectures()) {
    TinyModel(OptionsFor(architecture.name)).Write(folder / "tiny.gguf");
    const GgufFile file = GgufFile::Open(folder / "tiny.gguf");
    const Graph graph = BuildGraph(ModelSource(file, ModelOptions{}));
    const ShardedGraph sharded = Shard(graph, MakePlan(SplitMode::kTensor, 2, {}), [&](const WeightSource& source) -> const Format& { return WeightFormat(file, source); });
    std::string names;
    for (const Collective& c : sharded.collectives) names += c.name + " ";
    printf("%s: %s\n    %s\n", std::string(architecture.name).c_str(), Kinds(sharded).c_str(), names.c_str());
  }
}

}  // namespace
}  // namespace lockstep::test
