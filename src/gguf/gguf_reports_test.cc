// Public reports about similar readers, as small files; each test carries its serial.
#include <gtest/gtest.h>

#include "gguf/temp_folder.h"
#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

using Type = GgufValueType;

std::string FileWith(const std::vector<std::string>& pairs) {
  RawGguf file;
  file.pairs = pairs;
  return file.Bytes();
}

TEST(GgufReports, B061SecondDimensionWhoseSizeOverflowsIsRefusedByName) {
  for (uint32_t type : {0u, 1u, 8u, 24u, 28u}) {
    RawGguf file;
    file.infos = {Info("blk.0.weight", {1152, (uint64_t{1} << 42) + 1}, type, 0)};
    file.data = std::string(4096, 'x');
    std::string text = RefusalOf<GgufFile>(file.Bytes(), "m.gguf");
    EXPECT_TRUE(text.starts_with("m.gguf: blk.0.weight: size overflow: ")) << text;
    EXPECT_NE(text.find("[1152, 4398046511105]"), text.npos) << text;
  }
}

TEST(GgufReports, B062SizeWhosePaddingWrapsIsRefusedByName) {
  RawGguf file;
  file.infos = {Info("first", {~uint64_t{0} / 4}, 0, 0), Info("second", {4}, 0, 0)};
  file.data = std::string(32, 'x');
  std::string text = RefusalOf<GgufFile>(file.Bytes(), "m.gguf");
  EXPECT_TRUE(text.starts_with("m.gguf: first: size overflow: ")) << text;
}

TEST(GgufReports, B064AlignmentOfAnyIntegerTypeIsTakenAndAStringIsNot) {
  for (const std::string& pair : {Pair(kGgufAlignmentKey, Type::kInt32, Num<int32_t>(64)),
                                  Pair(kGgufAlignmentKey, Type::kUint64, Num<uint64_t>(64)),
                                  Pair(kGgufAlignmentKey, Type::kInt8, Num<int8_t>(64)),
                                  Pair(kGgufAlignmentKey, Type::kUint16, Num<uint16_t>(64))}) {
    RawGguf file;
    file.pairs = {pair};
    file.infos = {Info("a", {4}, 0, 0), Info("b", {1}, 0, 64)};
    file.alignment = 64;
    file.data = std::string(64, 'a') + std::string(4, 'b');
    const std::string bytes = file.Bytes();
    GgufFile loaded = GgufFile::Parse(AsBytes(bytes), "m.gguf");
    EXPECT_EQ(static_cast<char>(loaded.RequireTensor("a").data[15]), 'a');
    EXPECT_EQ(static_cast<char>(loaded.RequireTensor("b").data[0]), 'b');
  }
  EXPECT_EQ(
      RefusalOf<GgufFile>(FileWith({Pair(kGgufAlignmentKey, Type::kString, Str("32"))}), "m.gguf"),
      "m.gguf: general.alignment: expected an unsigned integer, found a string");
}

TEST(GgufReports, B065BlockCountBeyondTheTensorsIsRefused) {
  for (uint32_t count : {513u, 1000000u, 0xFFFFFFFFu, 0u}) {
    const std::string bytes = FileWith({Pair("llama.block_count", Type::kUint32, Num(count))});
    GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
    EXPECT_EQ(
        MessageOf([&] {
          file.metadata().Required<uint32_t>("llama.block_count", {1, 512});
        }),
        fmt::format("m.gguf: llama.block_count: expected a value from 1 to 512, found {}", count));
  }
}

TEST(GgufReports, B067ScoresAndTablesOfAWrongTypeOrLengthAreRefused) {
  const std::string bytes = FileWith({
      Pair("scores.i8", Type::kArray, Array(Type::kInt8, 4, "\1\2\3\4")),
      Pair("scores.short", Type::kArray, Array(Type::kFloat32, 2, Num(1.f) + Num(2.f))),
      Pair("charsmap", Type::kArray, Array(Type::kUint8, 3, "abc")),
  });
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  const GgufMetadata& m = file.metadata();
  const GgufLength four = GgufLength::Exactly(4);
  EXPECT_EQ(MessageOf([&] { m.RequiredArray<float>("scores.i8", four); }),
            "m.gguf: scores.i8: expected an array of floats, found an array of int8");
  EXPECT_EQ(MessageOf([&] { m.RequiredArray<float>("scores.short", four); }),
            "m.gguf: scores.short: expected 4 elements, found 2");
  EXPECT_EQ(MessageOf([&] { m.OptionalBytes("charsmap", GgufLength::AtLeast(4)); }),
            "m.gguf: charsmap: expected at least 4 elements, found 3");
}

TEST(GgufReports, B068TokenTypesOfAnyIntegerTypeAreTakenWhereInRange) {
  std::string u32, i64, bad;
  for (uint32_t i = 1; i <= 6; ++i) {
    u32 += Num<uint32_t>(i);
    i64 += Num<int64_t>(i);
    bad += Num<uint32_t>(i == 3 ? 99 : i);
  }
  const std::string bytes = FileWith({
      Pair("u32", Type::kArray, Array(Type::kUint32, 6, u32)),
      Pair("i64", Type::kArray, Array(Type::kInt64, 6, i64)),
      Pair("bad", Type::kArray, Array(Type::kUint32, 6, bad)),
  });
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  const GgufMetadata& m = file.metadata();
  const GgufRange types = {1, 6};
  const std::vector<int32_t> expected = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(m.RequiredArray<int32_t>("u32", GgufLength::Exactly(6), types), expected);
  EXPECT_EQ(m.RequiredArray<int32_t>("i64", GgufLength::Exactly(6), types), expected);
  EXPECT_EQ(MessageOf([&] { m.RequiredArray<int32_t>("bad", {}, types); }),
            "m.gguf: bad: element 2: expected a value from 1 to 6, found 99");
}

TEST(GgufReports, B071BigEndianFileIsRefusedByItsByteOrder) {
  // A whole big-endian file: magic as it is, then version 3, one tensor count and one pair count
  // swapped.
  auto swapped = [](auto value) {
    std::string bytes = Num(value);
    return std::string(bytes.rbegin(), bytes.rend());
  };
  const std::string key = "general.architecture";
  const std::string bytes = "GGUF" + swapped(uint32_t{3}) + swapped(uint64_t{0}) +
                            swapped(uint64_t{1}) + swapped(uint64_t{key.size()}) + key +
                            swapped(uint32_t{8}) + swapped(uint64_t{5}) + "llama";
  EXPECT_EQ(RefusalOf<GgufFile>(bytes, "m.gguf"),
            "m.gguf: header: byte order: expected a little-endian file, found a big-endian one");
}

// Version 2 has the same layout as 3.
TEST(GgufFile, LoadsVersion2) {
  RawGguf file;
  file.version = 2;
  file.pairs = {Pair("key", Type::kUint8, "\7")};
  file.infos = {Info("single", {}, 28, 0)};
  file.data = std::string(8, 'x');
  const std::string bytes = file.Bytes();
  GgufFile loaded = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  EXPECT_EQ(loaded.version(), 2u);
  EXPECT_EQ(loaded.metadata().Required<int>("key"), 7);
  EXPECT_EQ(loaded.RequireTensor("single").elements(), 1u);
  EXPECT_EQ(loaded.RequireTensor("single").data.size(), 8u);
}

// Real vocabulary files have no tensors.
TEST(GgufFile, LoadsEveryVocabularyFileOfTheSharedFolder) {
  const std::filesystem::path folder = LOCKSTEP_SOURCE_DIR "/../shared/tokenizers";
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << "no ../shared/tokenizers beside the source";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    GgufFile file = GgufFile::Open(entry.path().string());
    ReadAll(file);
    auto tokens = file.metadata().RequiredArray<std::string_view>("tokenizer.ggml.tokens");
    auto types = file.metadata().RequiredArray<int32_t>("tokenizer.ggml.token_type",
                                                        GgufLength::Exactly(tokens.size()), {0, 6});
    EXPECT_GT(types.size(), 1000u) << entry.path();
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace lockstep::test
