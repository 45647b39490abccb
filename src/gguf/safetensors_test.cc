#include "gguf/safetensors.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "gguf/safetensors_header.h"
#include "gguf/temp_folder.h"
#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

std::string File(std::string_view header, size_t data_bytes) {
  return Str(header) + std::string(data_bytes, 'd');
}

// One tensor entry with a name.
std::string Entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

const std::string kGood = R"("good":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

struct Row {
  std::string_view kind;
  std::string file;
  std::string says;  // from the item on
};

// A fault in the header's text: `body` stands behind a good tensor of 8 bytes, `data_bytes` follow.
Row Bad(std::string_view kind, const std::string& body, size_t data_bytes, std::string says) {
  return {kind, File("{" + kGood + "," + body + "}", data_bytes), std::move(says)};
}

std::vector<Row> FrameRows() {
  const std::string deep = "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}";
  return {
      {"empty file", "", "header: expected 8 bytes of header length"},
      {"length cut", std::string(7, '\0'), "header: expected 8 bytes of header length"},
      {"header of 0 bytes", File("", 0), "header: expected { as its first byte"},
      {"header past the file", Num<uint64_t>(100) + "{}", "header: expected 100 bytes of header"},
      {"header past the limit", Num<uint64_t>(100'000'001) + "{}", "header: expected at most"},
      {"header of 2^64 - 1", Num(~uint64_t{0}) + "{}", "header: expected at most"},
      {"header of 2^63", Num(uint64_t{1} << 63) + "{}", "header: expected at most"},
      {"space first", File(" {}", 0), "header: expected { as its first byte"},
      {"array", File("[]", 0), "header: expected { as its first byte"},
      {"not JSON", File("{x}", 0), "header: expected JSON"},
      {"JSON cut", File("{\"a\":", 0), "header: expected JSON"},
      {"trailing comma", File("{" + kGood + ",}", 8), "header: expected JSON"},
      {"comment", File("{/* */}", 0), "header: expected JSON"},
      {"single quotes", File("{'a':1}", 0), "header: expected JSON"},
      {"not UTF-8", File("{\"\xFF\":{}}", 0), "header: expected JSON"},
      {"lone surrogate", File("{\"\\uD800\":{}}", 0), "header: expected JSON"},
      {"nul in the padding", File(std::string("{}\0", 3), 0), "header: expected the JSON to end"},
      {"second document", File("{}{}", 0), "header: expected the JSON to end"},
      {"nested too deep", File(deep, 0), "a: expected an object, found an array"},
      {"data without tensors", File("{}", 4), "data: expected 0 bytes in all, found 4"},
      {"data behind the last", File("{" + kGood + "}", 9),
       "data: expected 8 bytes in all, found 9"},
      {"data cut", File("{" + kGood + "}", 7), "good: expected 8 bytes of data, found 7"},
      {"no data", File("{" + kGood + "}", 0), "good: expected 8 bytes of data, found 0"},
  };
}

std::vector<Row> EntryRows() {
  auto offsets = [](std::string_view kind, std::string_view text, std::string says) {
    return Bad(kind, Entry("bad", "U8", "[4]", text), 12, "bad: " + std::move(says));
  };
  auto shape = [](std::string_view kind, std::string_view text, std::string says) {
    return Bad(kind, Entry("bad", "U8", text, "[8,12]"), 12, "bad: " + std::move(says));
  };
  return {
      Bad("number for a tensor", R"("bad":1)", 8, "bad: expected an object, found a number"),
      Bad("null for a tensor", R"("bad":null)", 8, "bad: expected an object, found null"),
      Bad("string for a tensor", R"("bad":"x")", 8, "bad: expected an object, found a string"),
      Bad("array for a tensor", R"("bad":[])", 8, "bad: expected an object, found an array"),
      Bad("empty name", Entry("", "U8", "[4]", "[8,12]"), 12, "header: expected a tensor name"),
      Bad("no fields", R"("bad":{})", 8, "bad: expected dtype, shape and data_offsets, found 0"),
      Bad("no dtype", R"("bad":{"shape":[4],"data_offsets":[8,12]})", 12,
          "bad: expected dtype, shape"),
      Bad("no shape", R"("bad":{"dtype":"U8","data_offsets":[8,12]})", 12,
          "bad: expected dtype, shape"),
      Bad("no offsets", R"("bad":{"dtype":"U8","shape":[4]})", 12, "bad: expected dtype, shape"),
      Bad("unknown field", R"("bad":{"kind":1})", 8, "bad: expected dtype, shape or data_offsets"),
      Bad("field twice", R"("bad":{"dtype":"U8","dtype":"U8"})", 8, "bad: expected dtype once"),
      Bad("unknown dtype", Entry("bad", "F12", "[4]", "[8,12]"), 12, "bad: expected a known dtype"),
      Bad("lower-case dtype", Entry("bad", "u8", "[4]", "[8,12]"), 12,
          "bad: expected a known dtype"),
      Bad("dtype as a number", R"("bad":{"dtype":8})", 8, "bad: expected a string as dtype"),
      Bad("dtype as an array", R"("bad":{"dtype":["U8"]})", 8, "bad: expected a string as dtype"),
      shape("shape as a number", "4", "expected an array of integers as shape"),
      shape("shape as a string", "\"4\"", "expected an array of integers as shape"),
      shape("shape as an object", "{}", "expected an array of integers as shape"),
      shape("string in a shape", "[\"4\"]", "expected an array of integers as shape"),
      shape("array in a shape", "[[4]]", "expected an array of integers as shape"),
      shape("negative size", "[-4]", "expected an array of integers as shape, found a negative"),
      shape("fraction as a size", "[4.0]",
            "expected an array of integers as shape, found a fraction"),
      shape("size with an exponent", "[4e0]",
            "expected an array of integers as shape, found a frac"),
      shape("size above 64 bits", "[18446744073709551616]",
            "expected an array of integers as shape"),
      shape("null as a size", "[null]", "expected an array of integers as shape, found null"),
      shape("17 dimensions", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]",
            "expected at most 16 dimensions"),
      shape("product overflows", "[4294967296,4294967296]", "size overflow"),
      shape("bits overflow", "[2305843009213693952]", "size overflow"),
      shape("size larger than the bytes", "[5]", "expected 5 bytes for U8 [5]"),
      shape("size smaller than the bytes", "[3]", "expected 3 bytes for U8 [3]"),
      shape("empty shape with 4 bytes", "[]", "expected 1 bytes for U8 []"),
      shape("size 0 with 4 bytes", "[0]", "expected 0 bytes for U8 [0]"),
      Bad("half a byte", Entry("bad", "F4", "[3]", "[8,10]"), 10,
          "bad: expected a whole number of"),
      Bad("part of a byte", Entry("bad", "F6_E2M3", "[2]", "[8,10]"), 10, "bad: expected a whole"),
      offsets("no offsets in the array", "[]", "expected 2 data_offsets, found 0"),
      offsets("one offset", "[8]", "expected 2 data_offsets, found 1"),
      offsets("three offsets", "[8,12,16]", "expected 2 data_offsets, found more"),
      offsets("offsets as a string", "\"8,12\"", "expected an array of integers as data_offsets"),
      offsets("negative offset", "[-8,12]", "expected an array of integers as data_offsets"),
      offsets("backwards", "[12,8]", "expected 4 bytes for U8 [4], found data_offsets [12, 8]"),
      offsets("hole", "[9,13]", "expected data from byte 8 on, found byte 9 (a hole)"),
      offsets("overlap", "[7,11]", "expected data from byte 8 on, found byte 7 (an overlap)"),
      offsets("offset that wraps", "[18446744073709551612,0]", "expected 4 bytes"),
      offsets("far past the file", "[9223372036854775808,9223372036854775812]",
              "expected data from"),
      Bad("all in one place", Entry("bad", "F32", "[2]", "[0,8]"), 8,
          "good: expected data from byte 8"),
      Bad("end past the file", Entry("bad", "U8", "[5]", "[8,13]"), 12,
          "bad: expected 5 bytes of data"),
      Bad("name twice", Entry("good", "U8", "[4]", "[8,12]"), 12,
          "good: expected one tensor of this"),
      Bad("metadata as a string", R"("__metadata__":"x")", 8, "__metadata__: expected an object"),
      Bad("number in the metadata", R"("__metadata__":{"a":1})", 8,
          "__metadata__: expected strings"),
      Bad("object in the metadata", R"("__metadata__":{"a":{}})", 8,
          "__metadata__: expected strings"),
      Bad("metadata twice", R"("__metadata__":{},"__metadata__":{})", 8,
          "__metadata__: expected it"),
      Bad("metadata key twice", R"("__metadata__":{"a":"","a":""})", 8,
          "__metadata__: a: expected one"),
  };
}

TEST(Safetensors, EveryMalformedFileIsRefusedInOneLineThatNamesTheFault) {
  std::set<std::string_view> kinds;
  for (const auto& rows : {FrameRows(), EntryRows()}) {
    for (const Row& row : rows) {
      EXPECT_TRUE(kinds.insert(row.kind).second) << row.kind;
      std::string text = RefusalOf<Safetensors>(row.file, "bad.safetensors");
      EXPECT_TRUE(text.starts_with("bad.safetensors: " + row.says)) << row.kind << ": " << text;
    }
  }
  EXPECT_GE(kinds.size(), 40u);
}

TEST(Safetensors, OddButSoundFilesLoad) {
  const std::string rows[] = {
      File("{}", 0),
      File("{}      ", 0),
      File("{" + kGood + "}\n", 8),
      File(R"({"__metadata__":{"format":"pt"},)" + kGood + "}", 8),
      File("{" + Entry("empty", "F32", "[0,18446744073709551615,7]", "[0,0]") + "}", 0),
      File("{" + Entry("one", "F64", "[]", "[0,8]") + "}", 8),
      File("{" + Entry("z", "U8", "[4]", "[0,4]") + "," + Entry("a", "F4", "[3,2]", "[4,7]") + "}",
           7),
      File("{" + Entry("b", "U8", "[1]", "[1,2]") + "," + Entry("a", "U8", "[1]", "[0,1]") + "}",
           2),
  };
  for (const std::string& row : rows) EXPECT_EQ(RefusalOf<Safetensors>(row, "x"), "") << row;
}

TEST(Safetensors, FileCutAtAnyByteIsRefused) {
  const std::string whole = File(R"({"__metadata__":{"a":"b"},)" + kGood + "} ", 8);
  ASSERT_EQ(RefusalOf<Safetensors>(whole, "x"), "");
  for (size_t n = 0; n < whole.size(); ++n) {
    std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_NE(RefusalOf<Safetensors>({cut.data(), n}, "x"), "") << n;
  }
}

TEST(Safetensors, AnyFlippedBitIsRefusedOrHarmless) {
  std::string file = File(R"({"__metadata__":{"a":"b"},)" + kGood + "} ", 8);
  size_t refused = 0;
  for (size_t bit = 0; bit < (file.size() - 8) * 8; ++bit) {
    char mask = static_cast<char>(1 << bit % 8);
    file[bit / 8] ^= mask;
    refused += !RefusalOf<Safetensors>(file, "x").empty();
    file[bit / 8] ^= mask;
  }
  EXPECT_GT(refused, 500u);
}

TEST(Safetensors, WrittenFilesComeBackExactly) {
  TempFolder folder;
  const std::string path = folder / "out.safetensors";
  const float logits[] = {1.5f, -2.f, 0.f, 3e38f, 1e-40f, 7.f};
  const int32_t tokens[] = {5, -1};
  const SafetensorsItem items[] = {
      {"tokens", "I32", {2}, std::as_bytes(std::span(tokens))},
      {"logits \"q\" \xC3\xA9\n", "F32", {2, 3}, std::as_bytes(std::span(logits))},
      {"none", "F32", {0, 3}, {}},
  };
  WriteSafetensors(path, items, {{"format", "pt"}, {"a\"b", "c\nd"}});
  Safetensors set = Safetensors::Open(path);
  ASSERT_EQ(set.tensors().size(), 3u);
  for (const SafetensorsItem& item : items) {
    const SafetensorsTensor& tensor = set.Require(item.name);
    EXPECT_EQ(tensor.type->name, item.type);
    EXPECT_EQ(tensor.shape, item.shape);
    EXPECT_TRUE(std::ranges::equal(tensor.data, item.data));
    EXPECT_EQ(tensor.elements() * 4, item.data.size());
    set.Release(tensor);
  }
  EXPECT_EQ(set.metadata().at("a\"b"), "c\nd");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(set.Require("tokens").data.data()) % 8, 0u);
  WriteSafetensors(path, {});
  EXPECT_TRUE(Safetensors::Open(path).tensors().empty());
}

TEST(Safetensors, WriterRefusesWhatWouldNotLoad) {
  TempFolder folder;
  const std::string path = folder / "out.safetensors";
  const std::string data(8, 'x');
  auto item = [&](std::string name, std::string_view type, std::vector<uint64_t> shape) {
    return SafetensorsItem{std::move(name), type, std::move(shape), AsBytes(data)};
  };
  const std::pair<std::vector<SafetensorsItem>, std::string_view> rows[] = {
      {{item("a", "F32", {3})}, "a: expected 12 bytes"},
      {{item("a", "F99", {2})}, "a: expected a known dtype"},
      {{item("a", "F32", {2}), item("a", "F32", {2})}, "a: expected one tensor of this name"},
      {{item("", "F32", {2})}, "header: expected a tensor name"},
      {{item("\xFF", "F32", {2})}, "header: expected JSON"},
  };
  for (const auto& [items, says] : rows) {
    std::string text = MessageOf([&, &items = items] { WriteSafetensors(path, items); });
    EXPECT_NE(text.find(says), text.npos) << text;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(SafetensorsIndex, OpensAllFilesAndWarnsOfAbsentOnes) {
  TempFolder folder;
  folder.Put("a.safetensors", File("{" + Entry("t.a", "U8", "[2]", "[0,2]") + "}", 2));
  folder.Put("b.safetensors", File("{" + Entry("t.b", "U8", "[3]", "[0,3]") + "}", 3));
  folder.Put("model.safetensors.index.json",
             R"({"metadata":{"total_size":9,"x":[{}]},"weight_map":{"t.a":"a.safetensors",
                "t.b":"b.safetensors","t.c":"c.safetensors"}})");
  Safetensors set = Safetensors::Open(folder / "");
  ASSERT_EQ(set.tensors().size(), 2u);
  EXPECT_EQ(set.Require("t.a").data.size(), 2u);
  EXPECT_EQ(set.Require("t.b").data.size(), 3u);
  EXPECT_EQ(set.Find("t.c"), nullptr);
  ASSERT_EQ(set.warnings().size(), 1u);
  EXPECT_NE(set.warnings()[0].find("c.safetensors: the file is missing"), std::string::npos);
  EXPECT_NE(MessageOf([&] {
              set.Require("t.c");
            }).find("t.c: expected this tensor in c.safetensors, which is missing"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] { set.Require("t.d"); }).find("t.d: tensor is missing"),
            std::string::npos);
}

TEST(SafetensorsIndex, MalformedIndexesAreRefusedInOneLine) {
  const std::pair<std::string, std::string_view> rows[] = {
      {"", "index: expected JSON"},
      {"{", "index: expected JSON"},
      {"[]", "index: expected an object, found an array"},
      {"3", "index: expected an object, found a number"},
      {"\"x\"", "weight_map: expected an object, but the key is missing"},
      {"{}", "weight_map: expected an object, but the key is missing"},
      {R"({"weight_map":1})", "weight_map: expected an object, found a number"},
      {R"({"weight_map":"a"})", "weight_map: expected an object, found a string"},
      {R"({"weight_map":[]})", "weight_map: expected an object, found an array"},
      {R"({"weight_map":{},"weight_map":{}})", "weight_map: expected it once"},
      {R"({"weight_map":{"t":1}})", "t: expected a file name, found a number"},
      {R"({"weight_map":{"t":null}})", "t: expected a file name, found null"},
      {R"({"weight_map":{"t":{}}})", "t: expected a file name, found an object"},
      {R"({"weight_map":{"t":["a"]}})", "t: expected a file name, found an array"},
      {R"({"weight_map":{"t":""}})", "t: expected a file name, found \"\""},
      {R"({"weight_map":{"t":".."}})", "t: expected a file name, found \"..\""},
      {R"({"weight_map":{"t":"../x"}})", "t: expected a file name, found \"../x\""},
      {R"({"weight_map":{"t":"/etc/passwd"}})", "t: expected a file name"},
      {R"({"weight_map":{"t":"a\u0000b"}})", "t: expected a file name"},
      {R"({"weight_map":{"t":"a.safetensors","t":"b"}})", "t: expected one file, found two"},
      {R"({"weight_map":{"u":"a.safetensors"}})", "u: expected this tensor in a.safetensors"},
      {R"({"weight_map":{"t":"a.safetensors","u":"b.safetensors"}})",
       "t: expected one tensor of this name, found another in"},
  };
  TempFolder folder;
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    folder.Put(name, File("{" + Entry("t", "U8", "[2]", "[0,2]") + "}", 2));
  }
  for (const auto& [json, says] : rows) {
    std::string path = folder.Put("model.safetensors.index.json", json);
    std::string text = MessageOf([&] { Safetensors::Open(path); });
    EXPECT_NE(text.find(says), text.npos) << json << ": " << text;
    EXPECT_EQ(text.find('\n'), text.npos);
    EXPECT_TRUE(text.starts_with(folder / "")) << text;
  }
}

TEST(SafetensorsWriter, PiecesInAnyOrderGiveTheFileOfOnePiece) {
  TempFolder folder;
  std::vector<float> a(6), b(10);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
  const auto bytes_a = std::as_bytes(std::span(a)), bytes_b = std::as_bytes(std::span(b));
  const std::vector<SafetensorsItem> items = {
      {"a", "F32", {2, 3}, bytes_a}, {"none", "F32", {0}, {}}, {"b", "F32", {10}, bytes_b}};
  WriteSafetensors(folder / "whole", items, {{"k", "v"}});
  const std::vector<SafetensorsPlan> plan = {
      {"a", "F32", {2, 3}}, {"none", "F32", {0}}, {"b", "F32", {10}}};
  SafetensorsWriter writer(folder / "pieces", plan, {{"k", "v"}});
  writer.Append(2, bytes_b.first(12));
  writer.Append(0, bytes_a.first(4));
  writer.Append(2, bytes_b.subspan(12));
  EXPECT_FALSE(std::filesystem::exists(folder / "pieces"));
  writer.Append(0, bytes_a.subspan(4));
  writer.Commit();
  EXPECT_EQ(ReadFile(folder / "pieces", 1 << 20), ReadFile(folder / "whole", 1 << 20));
}

TEST(SafetensorsWriter, ImpossiblePlansAreRefused) {
  TempFolder folder;
  for (const SafetensorsPlan& plan : std::vector<SafetensorsPlan>{
           {"a", "F31", {1}}, {"a", "F32", {UINT64_MAX, 2}}, {"__metadata__", "F32", {1}}}) {
    const std::string message =
        MessageOf([&] { SafetensorsWriter(folder / "x", std::span(&plan, 1)); });
    EXPECT_NE(message, "") << plan.type;
    EXPECT_EQ(message.find('\n'), message.npos);
    EXPECT_TRUE(std::filesystem::is_empty(folder / "")) << message;
  }
}

TEST(Safetensors, FolderWithoutACheckpointIsRefused) {
  TempFolder folder;
  EXPECT_NE(MessageOf([&] { Safetensors::Open(folder / ""); }).find("found neither"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] { Safetensors::Open(folder / "x.safetensors"); }).find("No such file"),
            std::string::npos);
}

TEST(Safetensors, LoadsEveryFileOfTheSharedFolder) {
  const std::filesystem::path folder = LOCKSTEP_SOURCE_DIR "/../shared/goldens";
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << "no ../shared/goldens beside the source";
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    EXPECT_FALSE(Safetensors::Open(entry.path().string()).tensors().empty()) << entry.path();
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace lockstep::test
