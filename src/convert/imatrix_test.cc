// Importance matrices: both file formats, merging, and damaged files.
#include "convert/imatrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "gguf/gguf_writer.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::MessageOf;
using test::TempFolder;

Imatrix Sample() {
  Imatrix matrix;
  ImatrixEntry& dense = matrix.Add("blk.0.attn_q.weight", 1, 3);
  dense.sums = {10, 20, 30};
  dense.counts = {10};
  ImatrixEntry& experts = matrix.Add("blk.0.ffn_up_exps.weight", 2, 2);
  experts.sums = {4, 8, 0, 0};
  experts.counts = {4, 0};
  matrix.datasets = {"a.txt"};
  matrix.chunks = 5;
  matrix.chunk_tokens = 128;
  return matrix;
}

// The older binary format.
class OldFile {
 public:
  OldFile& Number(int32_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  OldFile& Text(std::string_view text) {
    Number(static_cast<int32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  OldFile& Value(float value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

OldFile OldSample() {
  OldFile file;
  file.Number(1).Text("blk.0.attn_q.weight").Number(4).Number(3).Value(4).Value(8).Value(12);
  file.Number(4).Text("old.txt");
  return file;
}

TEST(Imatrix, IsReadAsItWasWritten) {
  TempFolder folder;
  const Imatrix written = Sample();
  written.Write(folder / "m.gguf");
  const Imatrix read = Imatrix::Read(folder / "m.gguf");
  ASSERT_EQ(read.entries().size(), 2u);
  for (const auto& [name, entry] : written.entries()) {
    ASSERT_NE(read.Find(name), nullptr);
    EXPECT_EQ(read.Find(name)->sums, entry.sums);
    EXPECT_EQ(read.Find(name)->counts, entry.counts);
  }
  EXPECT_EQ(read.datasets, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(read.chunks, 5u);
  EXPECT_EQ(read.chunk_tokens, 128u);
}

TEST(Imatrix, IsWrittenUnderLlamaCppsNames) {
  TempFolder folder;
  Sample().Write(folder / "m.gguf");
  const GgufFile file = GgufFile::Open(folder / "m.gguf");
  EXPECT_EQ(file.metadata().Required<std::string>("general.type"), "imatrix");
  EXPECT_EQ(file.metadata().Required<uint32_t>("imatrix.chunk_count"), 5u);
  EXPECT_EQ(file.metadata().Required<uint32_t>("imatrix.chunk_size"), 128u);
  const GgufTensor sums = file.RequireTensor("blk.0.ffn_up_exps.weight.in_sum2");
  EXPECT_EQ(sums.dims[0], 2u);
  EXPECT_EQ(sums.dims[1], 2u);
  EXPECT_EQ(file.RequireTensor("blk.0.ffn_up_exps.weight.counts").dims[1], 2u);
}

TEST(Imatrix, HasMeansAndOnesForExpertsThatWereNeverUsed) {
  EXPECT_EQ(Imatrix::Means(*Sample().Find("blk.0.attn_q.weight")), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Imatrix::Means(*Sample().Find("blk.0.ffn_up_exps.weight")),
            (std::vector<float>{1, 2, 1, 1}));
}

TEST(Imatrix, ReadsTheOlderFormat) {
  TempFolder folder;
  const Imatrix read = Imatrix::Read(folder.Put("m.dat", OldSample().bytes()));
  EXPECT_EQ(Imatrix::Means(*read.Find("blk.0.attn_q.weight")), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(read.chunks, 4u);
  EXPECT_EQ(read.datasets, std::vector<std::string>{"old.txt"});
}

TEST(Imatrix, MergesSumsAndCounts) {
  Imatrix matrix = Sample();
  matrix.Merge(Sample(), "again");
  EXPECT_EQ(matrix.Find("blk.0.attn_q.weight")->sums, (std::vector<double>{20, 40, 60}));
  EXPECT_EQ(matrix.Find("blk.0.ffn_up_exps.weight")->counts, (std::vector<double>{8, 0}));
  EXPECT_EQ(matrix.chunks, 10u);
  Imatrix other;
  other.Add("blk.0.attn_q.weight", 1, 4);
  EXPECT_EQ(MessageOf([&] { matrix.Merge(other, "other.gguf"); }),
            "other.gguf: blk.0.attn_q.weight: expected 3 sums of 1 matrices, found 4 of 1");
}

TEST(Imatrix, RefusesDamagedFilesInOneLine) {
  TempFolder folder;
  const std::string old = OldSample().bytes();
  // Every cut of the older format but the two that leave out what newer files added.
  const size_t core = old.size() - sizeof(int32_t) - sizeof(int32_t) - 7;
  for (size_t size = 0; size < old.size(); ++size) {
    if (size == core || size == core + sizeof(int32_t)) continue;
    const std::string path = folder.Put("cut", old.substr(0, size));
    EXPECT_NE(MessageOf([&] { Imatrix::Read(path); }), "") << size;
  }
  const auto message = [&](const OldFile& file) {
    const std::string path = folder.Put("m", file.bytes());
    std::string text = MessageOf([&] { Imatrix::Read(path); });
    return text.substr(0, path.size()) == path ? text.substr(path.size()) : text;
  };
  EXPECT_EQ(message(OldFile().Number(0)), ": number of entries: expected at least 1, found 0");
  EXPECT_EQ(message(OldFile().Number(1).Number(-1)),
            ": name of an entry: expected at least 0, found -1");
  EXPECT_EQ(message(OldFile().Number(1).Number(INT32_MAX)),
            ": name of an entry: expected 2147483647 bytes, found 0 to the end of the file");
  EXPECT_EQ(message(OldFile().Number(1).Text("a").Number(1).Number(INT32_MAX)),
            ": values of an entry: expected 8589934588 bytes, found 0 to the end of the file");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message(OldFile().Number(1).Text("a").Number(1).Number(1).Value(nan)),
            ": a: expected finite numbers from 0 up, found nan");
  EXPECT_EQ(message(OldFile().Number(1).Text("a").Number(1).Number(1).Value(-1)),
            ": a: expected finite numbers from 0 up, found -1");
}

TEST(Imatrix, RefusesGgufFilesThatAreNone) {
  TempFolder folder;
  const auto message = [&](const std::function<void(GgufWriter&)>& fill) {
    const std::string path = folder / "m.gguf";
    {
      GgufWriter writer(path);
      fill(writer);
      writer.Finish();
    }
    std::string text = MessageOf([&] { Imatrix::Read(path); });
    return text.substr(0, path.size()) == path ? text.substr(path.size()) : text;
  };
  const auto zeros = [](GgufWriter& writer, size_t bytes) {
    writer.Write(std::vector<std::byte>(bytes));
  };
  EXPECT_EQ(message([](GgufWriter&) {}), ": expected an importance matrix, found no entry");
  EXPECT_EQ(message([&](GgufWriter& writer) {
              writer.AddTensor("a.in_sum2", 0, {4, 1});
              zeros(writer, 16);
            }),
            ": a.counts: tensor is missing");
  EXPECT_EQ(message([&](GgufWriter& writer) {
              writer.AddTensor("a.in_sum2", 0, {4, 1});
              writer.AddTensor("a.counts", 0, {1, 3});
              zeros(writer, 28);
            }),
            ": a: expected a multiple of the 3 counts, found 4 sums");
  EXPECT_EQ(message([&](GgufWriter& writer) {
              writer.AddTensor("a.in_sum2", 1, {4, 1});
              writer.AddTensor("a.counts", 0, {1, 1});
              zeros(writer, 12);
            }),
            ": a.in_sum2: expected F32, found F16");
}

}  // namespace
}  // namespace lockstep
