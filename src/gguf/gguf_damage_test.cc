// A sound file cut at every byte, and with every bit of its head turned over.
#include <gtest/gtest.h>

#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

using Type = GgufValueType;

// A valid file with something of everything.
std::string Rich() {
  RawGguf file;
  file.pairs = {
      Pair("general.architecture", Type::kString, Str("llama")),
      Pair("general.alignment", Type::kUint32, Num<uint32_t>(32)),
      Pair("a.bool", Type::kBool, Num<uint8_t>(1)),
      Pair("a.float", Type::kFloat32, Num(1.5f)),
      Pair("tokens", Type::kArray, Array(Type::kString, 3, Str("a") + Str("") + Str("bc"))),
      Pair("scores", Type::kArray, Array(Type::kFloat32, 2, Num(1.f) + Num(2.f))),
      Pair(
          "nested", Type::kArray,
          Array(Type::kArray, 2,
                Array(Type::kUint8, 1, "x") + Array(Type::kArray, 1, Array(Type::kUint8, 1, "x")))),
      Pair("split.count", Type::kUint16, Num<uint16_t>(1)),
  };
  file.infos = {Info("token_embd.weight", {32, 2}, 8, 0), Info("norm", {3}, 0, 96)};
  file.data = std::string(96 + 12, 'd');
  return file.Bytes();
}

TEST(GgufDamage, FileCutAtAnyByteIsRefused) {
  const std::string whole = Rich();
  ASSERT_EQ(RefusalOf<GgufFile>(whole, "whole.gguf"), "");
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    std::string text = RefusalOf<GgufFile>({cut.data(), n}, "cut.gguf");
    EXPECT_TRUE(text.starts_with("cut.gguf: ")) << n << ": " << text;
  }
}

TEST(GgufDamage, AnyFlippedBitIsRefusedOrHarmless) {
  std::string file = Rich();
  const size_t data = 96 + 12;
  size_t refused = 0;
  for (size_t bit = 0; bit < (file.size() - data) * 8; ++bit) {
    char mask = static_cast<char>(1 << bit % 8);
    file[bit / 8] ^= mask;
    std::string text = RefusalOf<GgufFile>(file, "flip.gguf");
    EXPECT_TRUE(text.empty() || text.starts_with("flip.gguf: ")) << text;
    refused += !text.empty();
    file[bit / 8] ^= mask;
  }
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace lockstep::test
