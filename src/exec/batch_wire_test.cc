#include "exec/batch_wire.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/recurrent.h"

namespace lockstep {
namespace {

// Rows of sequences, each from a position on.
struct Rows {
  int64_t first, count;
};

class BatchOf {
 public:
  explicit BatchOf(const std::vector<Rows>& sequences) {
    int32_t page = 0;
    for (const Rows& rows : sequences) {
      pages_.emplace_back();
      for (int64_t i = 0; i <= (rows.first + rows.count) / kPageTokens; ++i)
        pages_.back().push_back(page++);
      for (int64_t i = 0; i < rows.count; ++i) {
        if (i % 3 == 0) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.places.push_back({static_cast<int32_t>(pages_.size()) - 1, rows.first + i});
        batch.tokens.push_back(static_cast<int32_t>(batch.tokens.size()) * 3 + 1);
      }
    }
    for (size_t i = 0; i < 2 * batch.tokens.size(); ++i)
      input_.push_back(static_cast<float>(i) / 4);
    batch.input = input_;
    for (size_t i = 0; i < pages_.size(); ++i)
      batch.sequences.push_back({pages_[i], static_cast<int64_t>(i) + 5, -1, -1, 0});
  }

  Batch batch;

 private:
  std::vector<std::vector<int32_t>> pages_;
  std::vector<float> input_;
};

std::string Text(const Batch& batch) {
  std::string text = fmt::format("tokens {} outputs {}", fmt::join(batch.tokens, ","),
                                 fmt::join(batch.outputs, ","));
  for (const BatchPlace& place : batch.places)
    text += fmt::format(" {}@{}", place.sequence, place.position);
  for (const BatchSequence& s : batch.sequences) {
    text += fmt::format(" [{} slot {} restore {} save {} at {}]", fmt::join(s.pages, ","), s.slot,
                        s.restore, s.save, s.save_at);
  }
  return text + fmt::format(" input {}", fmt::join(batch.input, ","));
}

const std::vector<std::vector<Rows>> kBatches = {{},
                                                 {{0, 1}},
                                                 {{100, 1}, {7, 1}, {64, 1}},
                                                 {{0, 200}},
                                                 {{130, 40}, {3, 90}},
                                                 {{5, 0}, {0, 3}},
                                                 {{0, 31}, {1, 1}, {0, 70}, {64, 5}}};

TEST(BatchWire, BringsBackEveryBatch) {
  for (const auto& rows : kBatches) {
    BatchOf of(rows);
    if (!of.batch.sequences.empty()) {
      of.batch.sequences[0].restore = 3;
      of.batch.sequences.back().save = 2;
      of.batch.sequences.back().save_at = int64_t{1} << 40;
    }
    const std::string bytes = EncodeBatch(of.batch);
    EXPECT_EQ(Text(DecodeBatch(bytes).batch), Text(of.batch));
  }
}

TEST(BatchWire, RefusesBytesThatAreNoBatch) {
  const BatchOf of({{130, 4}, {3, 2}});
  const std::string bytes = EncodeBatch(of.batch);
  auto fails = [](const std::string& text) {
    try {
      DecodeBatch(text);
    } catch (const Error& error) {
      return std::string(error.what()).starts_with("batch: ");
    }
    return false;
  };
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_TRUE(fails(bytes.substr(0, size))) << size;
  EXPECT_TRUE(fails(bytes + 'x'));
  for (int64_t count : {int64_t{-1}, int64_t{1} << 62, INT64_MIN}) {
    std::string broken = bytes;
    broken.replace(0, sizeof(count), reinterpret_cast<const char*>(&count), sizeof(count));
    EXPECT_TRUE(fails(broken)) << count;
  }
}

TEST(CutBatch, GivesPiecesThatAreTheBatchOneAfterTheOther) {
  for (const auto& rows : kBatches) {
    const BatchOf of(rows);
    for (int64_t count : {1, 2, 3, 7}) {
      const std::vector<Batch> pieces = CutBatch(of.batch, count);
      EXPECT_LE(std::ssize(pieces), count);
      Batch all;
      std::vector<float> input;
      for (const Batch& piece : pieces) {
        EXPECT_FALSE(piece.tokens.empty());
        const auto first = static_cast<int32_t>(all.tokens.size());
        for (int32_t row : piece.outputs) all.outputs.push_back(first + row);
        input.insert(input.end(), piece.input.begin(), piece.input.end());
        all.tokens.insert(all.tokens.end(), piece.tokens.begin(), piece.tokens.end());
        for (const BatchPlace& place : piece.places) {
          const BatchSequence& sequence = piece.sequences[static_cast<size_t>(place.sequence)];
          // Slots were given by number.
          all.places.push_back({static_cast<int32_t>(sequence.slot - 5), place.position});
        }
      }
      EXPECT_EQ(all.tokens, of.batch.tokens);
      EXPECT_EQ(all.outputs, of.batch.outputs);
      EXPECT_TRUE(std::ranges::equal(input, of.batch.input));
      for (size_t i = 0; i < all.places.size(); ++i) {
        EXPECT_EQ(all.places[i].sequence, of.batch.places[i].sequence);
        EXPECT_EQ(all.places[i].position, of.batch.places[i].position);
      }
    }
  }
}

// What may be dropped after a batch may be dropped after its last piece.
TEST(CutBatch, LeavesTheLastRowsOfASequenceTogether) {
  for (int64_t rows = 1; rows < 150; ++rows) {
    const BatchOf of({{40, rows}, {0, 2}});
    for (int64_t count : {2, 3, 4}) {
      int64_t together = 0;  // rows of the first sequence in the last piece that has any
      for (const Batch& piece : CutBatch(of.batch, count)) {
        const int64_t here = std::ranges::count_if(piece.places, [&](const BatchPlace& place) {
          return piece.sequences[static_cast<size_t>(place.sequence)].slot == 5;
        });
        if (here > 0) together = here;
      }
      EXPECT_GE(together, std::min<int64_t>(rows, kDropRows)) << rows << " in " << count;
    }
  }
}

TEST(CutBatch, RestoresInTheFirstPieceAndSavesInOne) {
  for (int64_t at = 10; at <= 210; ++at) {
    BatchOf of({{10, 200}});
    of.batch.sequences[0].restore = 4;
    of.batch.sequences[0].save = 6;
    of.batch.sequences[0].save_at = at;
    const std::vector<Batch> pieces = CutBatch(of.batch, 3);
    ASSERT_EQ(pieces.size(), 3u);
    int saves = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const BatchSequence& sequence = pieces[i].sequences[0];
      EXPECT_EQ(sequence.restore, i == 0 ? 4 : -1);
      if (sequence.save < 0) continue;
      ++saves;
      const int64_t first = pieces[i].places.front().position;
      EXPECT_GE(at, first);
      EXPECT_LE(at, first + std::ssize(pieces[i].tokens));
    }
    EXPECT_EQ(saves, 1) << at;
  }
}

}  // namespace
}  // namespace lockstep
