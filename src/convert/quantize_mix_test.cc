// Which formats the quantiser chooses.
#include "convert/quantize_mix.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "convert/testing/quantize_model.h"
#include "gguf/gguf_file.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::MessageOf;
using test::TempFolder;
using testing::LayeredModel;
using testing::TestModel;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// "Q6_K*2,Q4_K*14" for one format a layer, "Q4_K" for all layers.
std::vector<std::string> Layers(const std::string& text) {
  std::vector<std::string> layers;
  for (const std::string& run : Split(text, ',')) {
    const size_t star = run.find('*');
    const int count = star == run.npos ? 16 : std::stoi(run.substr(star + 1));
    layers.insert(layers.end(), static_cast<size_t>(count), run.substr(0, star));
  }
  return layers;
}

TEST(QuantizeMix, ChoosesWhatLlamaCppChooses) {
  TempFolder folder;
  std::ifstream lines(LOCKSTEP_SOURCE_DIR "/src/convert/testdata/mixes.txt");
  const std::map<std::string, TestModel> models = {{"narrow", LayeredModel(false, 0)},
                                                   {"wide", LayeredModel(true, 0)},
                                                   {"eight", LayeredModel(false, 8)},
                                                   {"many", LayeredModel(false, 16)}};
  std::map<std::string, GgufFile> files;
  for (auto [name, model] : models) {
    model.keys["attention.head_count_kv"] = name == "narrow" || name == "many" ? 4 : 2;
    files.emplace(name, GgufFile::Open(model.Write(folder / name)));
  }
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> words = Split(line, ' ');
    const GgufFile& file = files.at(words[0]);
    MixOptions options;
    options.mix = FindMix(words[2]);
    ASSERT_NE(options.mix, nullptr) << words[2];
    options.has_imatrix = words[1] == "imatrix";
    const std::vector<GgufTensor> tensors(file.tensors().begin(), file.tensors().end());
    std::map<std::string, std::string> found;
    for (const PlannedTensor& row : PlanFormats(tensors, file.metadata(), options)) {
      found[std::string(row.tensor.name)] = row.to->name;
    }
    for (size_t i = 3; i < words.size(); ++i) {
      const std::string name = words[i].substr(0, words[i].find('='));
      const std::string types = words[i].substr(name.size() + 1);
      if (found.contains(name + ".weight")) {
        EXPECT_EQ(found[name + ".weight"], types) << line;
        continue;
      }
      const std::vector<std::string> layers = Layers(types);
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        EXPECT_EQ(found[fmt::format("blk.{}.{}.weight", layer, name)], layers[layer])
            << words[0] << " " << words[1] << " " << words[2] << " " << name << " " << layer;
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(QuantizeMix, IsFoundByNameAliasAndNumber) {
  EXPECT_EQ(FindMix("q4_k_m")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("Q4_K")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("15")->name, "Q4_K_M");
  EXPECT_EQ(FindMix("0")->name, "F32");
  EXPECT_EQ(FindMix("copy")->id, MixId::kCopy);
  EXPECT_EQ(FindMix("Q4_K_X"), nullptr);
  EXPECT_EQ(MessageOf([] { RequireMix("x\n"); }).substr(0, 32), "type: expected one of F32, F16, ");
}

}  // namespace
}  // namespace lockstep
