// Names and packings of released checkpoints, where transformers saves others: the same file comes of both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "convert/convert.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "kept_checkpoint.h"
#include "noise.h"
#include "tensor/half.h"

namespace lockstep::test {
namespace {

struct Part {
  std::string type;
  std::vector<uint64_t> dims;
  std::vector<std::byte> bytes;
};
using Parts = std::map<std::string, Part>;

void Replace(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
}

// DeepSeek-V4 without "model.", as it was released.
bool NameAsDeepseek4(Parts& parts) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"model.embed_tokens.", "embed."},
      {"model.norm.", "norm."},
      {"model.hc_head.hc_", "hc_head_"},
      {"model.layers.", "layers."},
      {".attn.norm.", ".attn.kv_norm."}};
  if (!parts.contains("model.hc_head.hc_fn")) return false;
  Parts renamed;
  for (auto& [name, part] : parts) {
    std::string released = name;
    for (const auto& [from, to] : kNames) Replace(released, from, to);
    renamed[released] = std::move(part);
  }
  parts = std::move(renamed);
  return true;
}

// Takes the tensors of all experts, in order.
std::vector<Part> TakeExperts(Parts& parts, const std::string& stem, const std::string& ending) {
  std::vector<Part> experts;
  for (int e = 0; parts.contains(fmt::format("{}{}.{}", stem, e, ending)); ++e)
    experts.push_back(parts.extract(fmt::format("{}{}.{}", stem, e, ending)).mapped());
  return experts;
}

// Experts in one tensor, gates and ups in another.
bool StackExperts(Parts& parts) {
  std::vector<std::string> stems;
  for (const auto& [name, part] : parts) {
    constexpr std::string_view kFirst = "mlp.experts.0.down_proj.weight";
    if (name.ends_with(kFirst))
      stems.push_back(name.substr(0, name.size() - std::strlen("0.down_proj.weight")));
  }
  for (const std::string& stem : stems) {
    const auto gates = TakeExperts(parts, stem, "gate_proj.weight"),
               ups = TakeExperts(parts, stem, "up_proj.weight"),
               downs = TakeExperts(parts, stem, "down_proj.weight");
    const auto stacked = [&](const Part& one, uint64_t rows) {
      return Part{one.type, {downs.size(), rows, one.dims[1]}, {}};
    };
    Part both = stacked(gates[0], 2 * gates[0].dims[0]), down = stacked(downs[0], downs[0].dims[0]);
    for (size_t e = 0; e < downs.size(); ++e) {
      for (const Part* part : {&gates[e], &ups[e]})
        both.bytes.insert(both.bytes.end(), part->bytes.begin(), part->bytes.end());
      down.bytes.insert(down.bytes.end(), downs[e].bytes.begin(), downs[e].bytes.end());
    }
    parts[stem + "gate_up_proj"] = both;
    parts[stem + "down_proj"] = down;
  }
  return !stems.empty();
}

Parts ReadParts(const std::string& folder) {
  Parts parts;
  const Safetensors whole = Safetensors::Open(folder);
  for (const SafetensorsTensor& tensor : whole.tensors()) {
    parts[tensor.name] = {
        std::string(tensor.type->name), tensor.shape, {tensor.data.begin(), tensor.data.end()}};
  }
  return parts;
}

void WriteParts(const Parts& parts, const std::string& folder) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, part] : parts) items.push_back({name, part.type, part.dims, part.bytes});
  WriteSafetensors(folder + "/model.safetensors", items);
}

std::string Converted(const std::string& folder, const std::string& path) {
  ConvertCheckpoint({.folder = folder, .output = path, .type = "f32"});
  return ReadFile(path, 1 << 28);
}

TEST(Spellings, OfReleasesGiveTheSameFile) {
  constexpr std::pair<const char*, bool (*)(Parts&)> kSpellings[] = {
      {"DeepSeek-V4's names", NameAsDeepseek4}, {"stacked experts", StackExperts}};
  std::map<std::string, size_t> applied;
  for (const GoldenRow& row : KeptRows()) {
    TempFolder folder;
    std::filesystem::create_directory(folder / "checkpoint");
    WriteCheckpoint(KeptFolder(row), folder / "checkpoint");
    const Parts parts = ReadParts(folder / "checkpoint");
    std::string expected;
    for (const auto& [name, respell] : kSpellings) {
      Parts other = parts;
      if (!respell(other)) continue;
      if (expected.empty()) expected = Converted(folder / "checkpoint", folder / "a.gguf");
      WriteParts(other, folder / "checkpoint");
      EXPECT_TRUE(Converted(folder / "checkpoint", folder / "b.gguf") == expected)
          << row.name << ": " << name;
      ++applied[name];
    }
  }
  EXPECT_EQ(applied["DeepSeek-V4's names"], 2u);
  EXPECT_GE(applied["stacked experts"], 8u);
}

// Replaces a matrix by codes of a byte each or two in a byte, and scales; or by the bf16 that they stand for.
struct Coded {
  Part codes, scales, plain;
};

// Codes of MXFP4, a scale for 32.
Coded CodedInFour(const std::string& name, const std::vector<uint64_t>& dims) {
  static constexpr float kNumbers[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  const uint64_t rows = dims[0], columns = dims[1], start = NameHash(name, 1);
  Coded coded{
      {"I8", {rows, columns / 2}, {}}, {"F8_E8M0", {rows, columns / 32}, {}}, {"BF16", dims, {}}};
  const auto random = [&](uint64_t i) {
    return static_cast<uint64_t>((Noise(start, i) + 1) * 0x1p20);
  };
  for (uint64_t i = 0; i < rows * columns / 32; ++i)
    coded.scales.bytes.push_back(static_cast<std::byte>(118 + random(i + 1) % 5));
  for (uint64_t i = 0; i < rows * columns; i += 2) {
    const uint64_t low = random(rows * columns + i) & 15,
                   high = random(rows * columns + i + 1) & 15;
    coded.codes.bytes.push_back(static_cast<std::byte>(low | high << 4));
    const float scale = std::ldexp(1.0f, static_cast<int>(coded.scales.bytes[i / 32]) - 127);
    for (uint64_t code : {low, high}) {
      const uint16_t half = F32ToBf16((code & 8 ? -scale : scale) * kNumbers[code & 7]);
      coded.plain.bytes.push_back(static_cast<std::byte>(half & 255));
      coded.plain.bytes.push_back(static_cast<std::byte>(half >> 8));
    }
  }
  return coded;
}

// Codes of E4M3, one scale for the whole matrix of less than 128 rows and columns.
Coded CodedInEight(const std::string& name, const std::vector<uint64_t>& dims) {
  static constexpr std::pair<int, float> kCodes[] = {{0x38, 1.f},  {0x40, 2.f}, {0xB8, -1.f},
                                                     {0x3C, 1.5f}, {0x00, 0.f}, {0xB0, -.5f}};
  const uint64_t start = NameHash(name, 1);
  Coded coded{{"F8_E4M3", dims, {}}, {"F8_E8M0", {1, 1}, {std::byte{123}}}, {"BF16", dims, {}}};
  for (uint64_t i = 0; i < dims[0] * dims[1]; ++i) {
    const auto& [code, number] =
        kCodes[static_cast<uint64_t>((Noise(start, i + 1) + 1) * 0x1p20) % std::size(kCodes)];
    coded.codes.bytes.push_back(static_cast<std::byte>(code));
    const uint16_t half = F32ToBf16(number / 16);
    coded.plain.bytes.push_back(static_cast<std::byte>(half & 255));
    coded.plain.bytes.push_back(static_cast<std::byte>(half >> 8));
  }
  return coded;
}

TEST(Spellings, OfDeepseek4PackItsExpertsByTwoAndOtherMatricesByOne) {
  TempFolder folder;
  const std::string checkpoint = folder / "checkpoint";
  std::filesystem::create_directory(checkpoint);
  WriteCheckpoint(std::string(kKept) + "/deepseek4", checkpoint);
  Parts plain = ReadParts(checkpoint);
  ASSERT_TRUE(NameAsDeepseek4(plain));
  Parts packed = plain;
  size_t by_two = 0, by_one = 0;
  for (auto& [name, part] : plain) {
    const bool expert = name.find(".experts.") != name.npos,
               matrix = name.ends_with(".wq_a.weight");
    if (!expert && !matrix) continue;
    Coded coded = expert ? CodedInFour(name, part.dims) : CodedInEight(name, part.dims);
    part = coded.plain;
    packed[name] = coded.codes;
    packed[name.substr(0, name.size() - std::strlen("weight")) + "scale"] = coded.scales;
    ++(expert ? by_two : by_one);
  }
  EXPECT_GT(by_two, 100u);
  EXPECT_GT(by_one, 2u);
  WriteParts(plain, checkpoint);
  const std::string expected = Converted(checkpoint, folder / "a.gguf");
  WriteParts(packed, checkpoint);
  EXPECT_TRUE(Converted(checkpoint, folder / "b.gguf") == expected);
}

}  // namespace
}  // namespace lockstep::test
