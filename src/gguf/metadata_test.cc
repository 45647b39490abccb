#include "gguf/metadata.h"

#include <gtest/gtest.h>

#include <functional>

#include "gguf/temp_folder.h"
#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

using Type = GgufValueType;

// All kinds of values, each under a key that tells it.
std::string Sample() {
  RawGguf file;
  file.pairs = {
      Pair("u8", Type::kUint8, Num<uint8_t>(200)),
      Pair("i8", Type::kInt8, Num<int8_t>(-5)),
      Pair("i64", Type::kInt64, Num<int64_t>(70000)),
      Pair("u64.max", Type::kUint64, Num(~uint64_t{0})),
      Pair("f32", Type::kFloat32, Num(0.5f)),
      Pair("f64", Type::kFloat64, Num(0.25)),
      Pair("bool", Type::kBool, Num<uint8_t>(1)),
      Pair("text", Type::kString, Str("word")),
      Pair("array.i8", Type::kArray, Array(Type::kInt8, 3, "\1\2\3")),
      Pair("array.f32", Type::kArray, Array(Type::kFloat32, 2, Num(1.f) + Num(2.f))),
      Pair("array.text", Type::kArray, Array(Type::kString, 1, Str("x"))),
  };
  return file.Bytes();
}

TEST(GgufMetadata, IntegersComeFromAnyIntegerTypeThatFits) {
  const std::string bytes = Sample();
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.Required<uint8_t>("u8"), 200);
  EXPECT_EQ(m.Required<int64_t>("u8"), 200);
  EXPECT_EQ(m.Required<int32_t>("i8"), -5);
  EXPECT_EQ(m.Required<uint32_t>("i64"), 70000u);
  EXPECT_EQ(m.Required<uint64_t>("u64.max"), ~uint64_t{0});
  EXPECT_EQ(m.Required<float>("f64"), 0.25f);
  EXPECT_EQ(m.Required<double>("f32"), 0.5);
  EXPECT_EQ(m.Required<std::string_view>("text"), "word");
  EXPECT_EQ(m.RequiredArray<uint32_t>("array.i8"), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(m.OptionalBytes("array.i8")->size(), 3u);
  EXPECT_EQ(m.OptionalPerItem<int>("i8", 3), (std::vector<int>{-5, -5, -5}));
  EXPECT_EQ(m.OptionalPerItem<int>("array.i8", 3), (std::vector<int>{1, 2, 3}));
}

TEST(GgufMetadata, MissingKeysAreNothingOrTheDefault) {
  const std::string bytes = Sample();
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  const GgufMetadata& m = file.metadata();
  // "a" sorts before every key, "zz" behind, "f3" is the start of one.
  for (std::string_view key : {"a", "zz", "f3", ""}) {
    EXPECT_FALSE(m.Has(key));
    EXPECT_FALSE(m.Optional<int>(key));
    EXPECT_FALSE(m.OptionalArray<int>(key));
    EXPECT_FALSE(m.OptionalPerItem<int>(key, 2));
    EXPECT_FALSE(m.OptionalBytes(key));
    EXPECT_EQ(m.OptionalOr<int>(key, 12), 12);
  }
  EXPECT_TRUE(m.Has("f32"));
  EXPECT_EQ(m.OptionalOr<uint8_t>("u8", 12), 200);
}

TEST(GgufMetadata, MessagesNameFileKeyExpectedAndFound) {
  const std::string bytes = Sample();
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "model.gguf");
  const GgufMetadata& m = file.metadata();
  struct Row {
    std::string_view text;
    std::function<void()> run;
  };
  const Row rows[] = {
      {"text: expected an unsigned integer, found a string", [&] { m.Required<uint32_t>("text"); }},
      {"f32: expected an integer, found a float32", [&] { m.Optional<int>("f32"); }},
      {"bool: expected an integer, found a bool", [&] { m.OptionalOr<int>("bool", 1); }},
      {"u8: expected a float, found a uint8", [&] { m.Required<float>("u8"); }},
      {"i8: expected a bool, found an int8", [&] { m.Required<bool>("i8"); }},
      {"u8: expected a string, found a uint8", [&] { m.Required<std::string>("u8"); }},
      {"array.i8: expected a string, found an array of int8",
       [&] { m.Required<std::string_view>("array.i8"); }},
      {"gone: expected an unsigned integer, but the key is missing",
       [&] { m.Required<uint32_t>("gone"); }},
      {"gone: expected an array, but the key is missing", [&] { m.RequiredArray<float>("gone"); }},
      {"i8: expected a value from 0 to 4294967295, found -5", [&] { m.Required<uint32_t>("i8"); }},
      {"i64: expected a value from 0 to 65535, found 70000", [&] { m.Required<uint16_t>("i64"); }},
      {"i64: expected a value from 1 to 100, found 70000",
       [&] {
         m.Required<uint32_t>("i64", {1, 100});
       }},
      {"u64.max: expected a value from -9223372036854775808 to 9223372036854775807, found "
       "18446744073709551615",
       [&] { m.Required<int64_t>("u64.max"); }},
      {"text: expected an array, found a string", [&] { m.RequiredArray<int>("text"); }},
      {"array.i8: expected 4 elements, found 3",
       [&] { m.RequiredArray<int>("array.i8", GgufLength::Exactly(4)); }},
      {"array.i8: expected at least 4 elements, found 3",
       [&] { m.OptionalBytes("array.i8", GgufLength::AtLeast(4)); }},
      {"array.i8: expected 1 to 2 elements, found 3",
       [&] {
         m.OptionalArray<int>("array.i8", {1, 2});
       }},
      {"array.i8: element 2: expected a value from 0 to 2, found 3",
       [&] {
         m.RequiredArray<uint8_t>("array.i8", {}, {0, 2});
       }},
      {"array.i8: expected an array of floats, found an array of int8",
       [&] { m.RequiredArray<float>("array.i8"); }},
      {"array.text: expected an array of integers, found an array of string",
       [&] { m.RequiredArray<int>("array.text"); }},
      {"array.f32: expected an array of uint8 or int8, found an array of float32",
       [&] { m.OptionalBytes("array.f32"); }},
      {"array.f32: expected 3 elements, found 2",
       [&] { m.OptionalPerItem<float>("array.f32", 3); }},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(MessageOf(row.run), "model.gguf: " + std::string(row.text));
  }
}

TEST(GgufMetadata, EmptyArrayOfTheWrongTypeIsRefusedToo) {
  RawGguf raw;
  raw.pairs = {Pair("none", Type::kArray, Array(Type::kString, 0, "")),
               Pair("ints", Type::kArray, Array(Type::kInt32, 0, ""))};
  const std::string bytes = raw.Bytes();
  GgufFile file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  EXPECT_EQ(MessageOf([&] { file.metadata().RequiredArray<int>("none"); }),
            "m.gguf: none: expected an array of integers, found an array of string");
  EXPECT_TRUE(file.metadata().RequiredArray<uint64_t>("ints").empty());
}

}  // namespace
}  // namespace lockstep::test
