// Models of several files, and files on disk in general.
#include <gtest/gtest.h>

#include "gguf/gguf_writer.h"
#include "gguf/split.h"
#include "gguf/temp_folder.h"
#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

struct ShardSpec {
  uint16_t number = 0;
  uint16_t count = 3;
  int32_t tensors = 3;
  std::string tensor = "";  // "" for none
};

void PutShard(const std::string& path, const ShardSpec& spec) {
  GgufWriter writer(path);
  writer.Add("split.no", spec.number);
  writer.Add("split.count", spec.count);
  writer.Add("split.tensors.count", spec.tensors);
  if (spec.number == 0) writer.Add("general.architecture", "llama");
  if (!spec.tensor.empty()) writer.AddTensor(spec.tensor, 24, {5});
  const std::string data(spec.tensor.empty() ? 0 : 5, static_cast<char>('a' + spec.number));
  writer.Write(AsBytes(data));
  writer.Finish();
}

std::string Name(int number) { return fmt::format("m-{:05}-of-00003.gguf", number); }

// Three shards of one tensor each, any of which may be replaced before opening.
void PutAll(const TempFolder& folder) {
  for (uint16_t i = 0; i < 3; ++i) {
    PutShard(folder / Name(i + 1), {.number = i, .tensor = fmt::format("t{}", i)});
  }
}

std::string OpenMessage(const std::string& path) {
  return MessageOf([&] { GgufFile::Open(path); });
}

TEST(GgufSplit, FirstShardOpensAll) {
  TempFolder folder;
  PutAll(folder);
  GgufFile file = GgufFile::Open(folder / Name(1));
  EXPECT_EQ(file.shard_count(), 3u);
  ASSERT_EQ(file.tensor_count(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    GgufTensor tensor = file.RequireTensor(fmt::format("t{}", i));
    EXPECT_EQ(tensor.shard, i);
    EXPECT_EQ(static_cast<char>(tensor.data[4]), static_cast<char>('a' + i));
    EXPECT_EQ(file.shard_name(i), folder / Name(static_cast<int>(i) + 1));
    file.Release(tensor);
  }
  EXPECT_EQ(file.metadata().Required<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(MessageOf([&] { file.RequireTensor("t9"); }),
            folder / Name(1) + ": t9: tensor is missing");
}

TEST(GgufSplit, B073AnotherShardIsRefusedWithTheNameOfTheFirst) {
  TempFolder folder;
  PutAll(folder);
  for (int number : {2, 3}) {
    std::string text = OpenMessage(folder / Name(number));
    EXPECT_NE(text.find(fmt::format("found shard {}: open {}", number, folder / Name(1))),
              text.npos)
        << text;
  }
  // The name alone tells it too.
  GgufWriter writer(folder / "x-00002-of-00002.gguf");
  writer.Finish();
  std::string text = OpenMessage(folder / "x-00002-of-00002.gguf");
  EXPECT_NE(text.find("open " + (folder / "x-00001-of-00002.gguf")), text.npos) << text;
}

TEST(GgufSplit, MissingShardsAreNamed) {
  TempFolder folder;
  PutAll(folder);
  std::filesystem::remove(folder / Name(2));
  std::filesystem::remove(folder / Name(3));
  std::string text = OpenMessage(folder / Name(1));
  EXPECT_NE(text.find("split.count: expected 3 shards, found 2 missing: "), text.npos) << text;
  EXPECT_NE(text.find((folder / Name(2)) + ", " + (folder / Name(3))), text.npos) << text;

  PutShard(folder / "n-00001-of-65535.gguf", {.count = 65535});
  text = OpenMessage(folder / "n-00001-of-65535.gguf");
  EXPECT_NE(text.find("-00005-of-65535.gguf and 65530 more"), text.npos) << text;
}

TEST(GgufSplit, ShardsThatDoNotBelongTogetherAreRefused) {
  struct Row {
    std::string_view what;
    int file;  // which is replaced
    ShardSpec spec;
    std::string_view says;
  };
  const Row rows[] = {
      {"swapped number",
       2,
       {.number = 2, .tensor = "t1"},
       "split.no: expected a value from 1 to 1, found 2"},
      {"other count",
       3,
       {.number = 2, .count = 4, .tensor = "t2"},
       "split.count: expected a value from 3 to 3, found 4"},
      {"other total",
       3,
       {.number = 2, .tensors = 4, .tensor = "t2"},
       "split.tensors.count: expected a value from 3 to 3, found 4"},
      {"no tensor",
       3,
       {.number = 2},
       "split.tensors.count: expected 3 tensors in all shards, found 2"},
      {"duplicate tensor",
       3,
       {.number = 2, .tensor = "t0"},
       "t0: expected one tensor of this name, found another in "},
      {"count unlike the name",
       1,
       {.number = 0, .count = 2, .tensor = "t0"},
       "split.count: expected 3 as in the file's name, found 2"},
      {"negative total",
       1,
       {.number = 0, .tensors = -1, .tensor = "t0"},
       "split.tensors.count: expected a value from 0"},
  };
  for (const Row& row : rows) {
    TempFolder folder;
    PutAll(folder);
    PutShard(folder / Name(row.file), row.spec);
    std::string text = OpenMessage(folder / Name(1));
    EXPECT_NE(text.find(row.says), text.npos) << row.what << ": " << text;
  }
}

TEST(GgufSplit, ShardWithoutItsKeysIsRefused) {
  TempFolder folder;
  PutAll(folder);
  { GgufWriter(folder / Name(2)).Finish(); }
  std::string text = OpenMessage(folder / Name(1));
  EXPECT_NE(text.find(Name(2) + ": split.no: "), text.npos) << text;
  { GgufWriter(folder / Name(1)).Finish(); }
  text = OpenMessage(folder / Name(1));
  EXPECT_NE(text.find("split.count: expected 3 as in the file's name, found 1"), text.npos) << text;
}

TEST(GgufSplit, RenamedShardIsRefused) {
  TempFolder folder;
  PutAll(folder);
  std::filesystem::rename(folder / Name(1), folder / "m.gguf");
  std::string text = OpenMessage(folder / "m.gguf");
  EXPECT_NE(text.find("file name ending in -00001-of-00003.gguf"), text.npos) << text;
}

TEST(GgufSplit, SetOfOneIsAnOrdinaryFile) {
  TempFolder folder;
  PutShard(folder / "m-00001-of-00001.gguf", {.count = 1, .tensors = 1, .tensor = "t"});
  EXPECT_EQ(GgufFile::Open(folder / "m-00001-of-00001.gguf").tensor_count(), 1u);
  { GgufWriter(folder / "n-00001-of-00001.gguf").Finish(); }
  EXPECT_EQ(GgufFile::Open(folder / "n-00001-of-00001.gguf").tensor_count(), 0u);
}

TEST(GgufSplit, NamesAreTakenApart) {
  struct Row {
    std::string_view path;
    bool split;
  };
  const Row rows[] = {
      {"a/b-00001-of-00002.gguf", true},  {"-00001-of-00002.gguf", true},
      {"b-0001-of-00002.gguf", false},    {"b-00001-of-00002.GGUF", false},
      {"b-000x1-of-00002.gguf", false},   {"b-00001-of-+0002.gguf", false},
      {"b-00001_of-00002.gguf", false},   {"00001-of-00002.gguf", false},
      {"b-00001-of--0002.gguf", false},   {".gguf", false},
      {"b-100001-of-100002.gguf", false}, {"", false},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(ParseGgufSplitName(row.path).has_value(), row.split) << row.path;
  }
  auto name = ParseGgufSplitName("a/b-00007-of-00012.gguf");
  EXPECT_EQ(name->prefix, "a/b");
  EXPECT_EQ(name->number, 7u);
  EXPECT_EQ(name->count, 12u);
  EXPECT_EQ(name->PathOf(1), "a/b-00001-of-00012.gguf");
}

TEST(GgufFile, MissingPathsFoldersAndEmptyFilesAreRefused) {
  TempFolder folder;
  EXPECT_NE(OpenMessage(folder / "gone.gguf").find("No such file"), std::string::npos);
  EXPECT_NE(OpenMessage(folder / "").find("expected a file, found a directory"), std::string::npos);
  std::string path = folder.Put("empty.gguf", "");
  EXPECT_EQ(OpenMessage(path), path + ": header: expected 4 bytes of magic at byte 0, found 0");
}

}  // namespace
}  // namespace lockstep::test
