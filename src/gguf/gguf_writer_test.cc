#include "gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "gguf/temp_folder.h"
#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

// Writes one value of T and what it must come back as.
template <typename T>
void ExpectNumbers(const std::vector<T>& values) {
  TempFolder folder;
  const std::string path = folder / "numbers.gguf";
  GgufWriter writer(path);
  for (size_t i = 0; i < values.size(); ++i) {
    writer.Add(fmt::format("one.{}", i), static_cast<T>(values[i]));
  }
  writer.Add("all", GgufArrayData::Of<T>(std::span<const T>(values)));
  writer.Add("none", GgufArrayData::Of<T>(std::span<const T>()));
  writer.Finish();

  GgufFile file = GgufFile::Open(path);
  const GgufMetadata& metadata = file.metadata();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(metadata.Required<T>(fmt::format("one.{}", i)), values[i]);
  }
  EXPECT_EQ(metadata.RequiredArray<T>("all"), values);
  EXPECT_EQ(metadata.RequiredArray<T>("none"), std::vector<T>());
  EXPECT_EQ(metadata.size(), values.size() + 2);
}

template <typename T>
std::vector<T> Limits() {
  using L = std::numeric_limits<T>;
  return {L::lowest(), T{0}, T{1}, L::max(), static_cast<T>(L::max() / 2)};
}

TEST(GgufWriter, NumbersOfEveryTypeComeBackExactly) {
  ExpectNumbers(Limits<uint8_t>());
  ExpectNumbers(Limits<int8_t>());
  ExpectNumbers(Limits<uint16_t>());
  ExpectNumbers(Limits<int16_t>());
  ExpectNumbers(Limits<uint32_t>());
  ExpectNumbers(Limits<int32_t>());
  ExpectNumbers(Limits<uint64_t>());
  ExpectNumbers(Limits<int64_t>());
  ExpectNumbers(Limits<float>());
  ExpectNumbers(Limits<double>());
}

TEST(GgufWriter, BoolsStringsAndNestedArraysComeBackExactly) {
  TempFolder folder;
  const std::string path = folder / "values.gguf";
  const std::vector<std::string> words = {"", "a", std::string("nul\0inside", 10), "\xC3\xA9"};
  const bool flags[] = {true, false, true};
  const int16_t numbers[] = {-1, 2};
  const GgufArrayData rows[] = {GgufArrayData::Of<int16_t>(numbers),
                                GgufArrayData::OfStrings(std::span(words)),
                                GgufArrayData::OfArrays({})};
  GgufWriter writer(path);
  writer.Add("yes", true);
  writer.Add("text", words[2]);
  writer.Add("words", GgufArrayData::OfStrings(std::span(words)));
  writer.Add("flags", GgufArrayData::Of<bool>(flags));
  writer.Add("rows", GgufArrayData::OfArrays(rows));
  writer.Finish();

  GgufFile file = GgufFile::Open(path);
  EXPECT_TRUE(file.metadata().Required<bool>("yes"));
  EXPECT_EQ(file.metadata().Required<std::string>("text"), words[2]);
  EXPECT_EQ(file.metadata().RequiredArray<std::string>("words"), words);
  EXPECT_EQ(file.metadata().RequiredArray<bool>("flags"), (std::vector<bool>{true, false, true}));
  std::vector<uint64_t> counts;
  auto found = file.metadata().Find("rows");
  for (GgufValue row : std::get<GgufArray>(found->data)) {
    counts.push_back(std::get<GgufArray>(row.data).count);
  }
  EXPECT_EQ(counts, (std::vector<uint64_t>{2, 4, 0}));
  EXPECT_EQ(found->Describe(), "an array of array");
}

TEST(GgufWriter, TensorsOfEveryTypeComeBackWithTheirBytesAligned) {
  TempFolder folder;
  for (uint32_t alignment : {8u, 32u, 4096u}) {
    const std::string path = folder / "tensors.gguf";
    GgufWriter writer(path, alignment);
    std::string data;
    for (const TensorType& type : AllTensorTypes()) {
      uint64_t bytes =
          writer.AddTensor(fmt::format("t.{}", type.name), type.id, {type.block * uint64_t{2}, 3});
      EXPECT_EQ(bytes, uint64_t{6} * type.block_bytes);
      data.append(bytes, static_cast<char>('A' + type.id));
    }
    // In pieces that fit no tensor's size.
    for (size_t at = 0; at < data.size(); at += 7) {
      writer.Write(AsBytes(std::string_view(data).substr(at, 7)));
    }
    writer.Finish();

    GgufFile file = GgufFile::Open(path);
    ASSERT_EQ(file.tensor_count(), AllTensorTypes().size());
    EXPECT_EQ(file.version(), 3u);
    size_t i = 0;
    for (const TensorType& type : AllTensorTypes()) {
      GgufTensor tensor = file.RequireTensor(fmt::format("t.{}", type.name));
      EXPECT_EQ(tensor.name, file.tensor(i++).name);
      EXPECT_EQ(tensor.type, &type);
      EXPECT_EQ(tensor.dims_count, 2);
      EXPECT_EQ(tensor.rows(), 3u);
      EXPECT_EQ(tensor.elements(), uint64_t{6} * type.block);
      EXPECT_EQ(tensor.data.size(), tensor.rows() * tensor.row_bytes());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.data()) % alignment, 0u);
      for (std::byte b : tensor.data)
        ASSERT_EQ(static_cast<char>(b), static_cast<char>('A' + type.id));
      file.Release(tensor);
    }
    EXPECT_EQ(file.file_bytes(), std::filesystem::file_size(path));
  }
}

TEST(GgufWriter, CopiesTheMetadataOfAnotherFileByteForByte) {
  TempFolder folder;
  const std::string first = folder / "first.gguf";
  const std::string second = folder / "second.gguf";
  const std::vector<std::string> words = {"x", "yz"};
  const GgufArrayData rows[] = {GgufArrayData::OfStrings(std::span(words))};
  {
    GgufWriter writer(first);
    writer.Add("u8", uint8_t{200});
    writer.Add("i64", int64_t{-5});
    writer.Add("f32", 0.1f);
    writer.Add("f64", 0.1);
    writer.Add("flag", false);
    writer.Add("text", "hello");
    writer.Add("rows", GgufArrayData::OfArrays(rows));
    writer.Finish();
  }
  GgufFile file = GgufFile::Open(first);
  GgufWriter writer(second);
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    GgufEntry entry = file.metadata().at(i);
    writer.Add(entry.key, entry.value);
  }
  writer.Finish();
  EXPECT_EQ(ReadFile(first, 1 << 20), ReadFile(second, 1 << 20));
}

TEST(GgufWriter, RefusesWhatWouldNotLoad) {
  TempFolder folder;
  GgufWriter writer(folder / "out.gguf");
  writer.Add("key", 1u);
  writer.AddTensor("tensor", 0, {4});
  struct Row {
    std::string_view says;
    std::function<void()> run;
  };
  const Row rows[] = {
      {"key: expected one value, found two", [&] { writer.Add("key", "again"); }},
      {"general.alignment: expected to be left", [&] { writer.Add(kGgufAlignmentKey, 64u); }},
      {"key of 1 to 65535 bytes, found 0", [&] { writer.Add("", 1u); }},
      {"tensor: expected one tensor", [&] { writer.AddTensor("tensor", 0, {4}); }},
      {"t1: expected a known tensor type", [&] { writer.AddTensor("t1", 4, {4}); }},
      {"t2: expected rows of a multiple of 32", [&] { writer.AddTensor("t2", 2, {33}); }},
      {"t3: expected dimensions above 0",
       [&] {
         writer.AddTensor("t3", 0, {4, 0});
       }},
      {"t4: expected at most 4 dimensions",
       [&] {
         writer.AddTensor("t4", 0, {1, 1, 1, 1, 1});
       }},
      {"t5: size overflow",
       [&] {
         writer.AddTensor("t5", 0, {~uint64_t{0}, ~uint64_t{0}});
       }},
  };
  for (const Row& row : rows) {
    std::string text = MessageOf(row.run);
    EXPECT_NE(text.find(row.says), text.npos) << row.says << " / " << text;
  }
}

TEST(GgufWriter, LeavesNoFileWhereDataIsMissingOrTooLong) {
  TempFolder folder;
  const std::string path = folder / "out.gguf";
  const std::string data(17, 'x');
  {
    GgufWriter writer(path);
    writer.AddTensor("tensor", 0, {4});
    writer.Write(AsBytes(data).first(15));
    EXPECT_NE(MessageOf([&] { writer.Finish(); }).find("expected 16 bytes of data, found 15"),
              std::string::npos);
  }
  {
    GgufWriter writer(path);
    writer.AddTensor("tensor", 0, {4});
    EXPECT_NE(MessageOf([&] { writer.Write(AsBytes(data)); }).find("expected no more data"),
              std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

}  // namespace
}  // namespace lockstep::test
