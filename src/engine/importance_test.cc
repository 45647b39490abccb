// Importance matrices collected from tiny models: which matrices, from how many rows, and that the
// shape of the run does not matter.
#include "engine/importance.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

constexpr int64_t kTokens = 60;

struct Collected {
  Imatrix matrix;
  std::vector<double> squares_of_final;  // of the stream that the output matrix meets, by column
};

Collected Collect(const TinyOptions& tiny, int threads = 2, int64_t micro_batch = 512) {
  TempFolder folder;
  TinyModel(tiny).Write(folder / "tiny.gguf");
  LoadOptions options;
  options.path = folder / "tiny.gguf";
  options.threads = threads;
  options.micro_batch = micro_batch;
  options.context = 128;
  options.hidden = true;
  Model model(options);
  ImportanceCollector collector(model, {.output = true});
  Evaluator evaluator(model);
  Collected collected;
  collected.squares_of_final.resize(static_cast<size_t>(tiny.width));
  evaluator.Run(SomeTokens(kTokens), 0, [&](const EvaluatedRows& rows) {
    const auto hidden = evaluator.Hidden(std::ssize(model.graph().hidden) - 1);
    for (size_t i = 0; i < static_cast<size_t>(rows.rows * tiny.width); ++i) {
      collected.squares_of_final[i % static_cast<size_t>(tiny.width)] +=
          double{hidden[i]} * hidden[i];
    }
  });
  collected.matrix = collector.matrix();
  return collected;
}

const ImatrixEntry& Entry(const Imatrix& matrix, std::string_view name) {
  const ImatrixEntry* entry = matrix.Find(name);
  if (entry == nullptr) throw Failed("{}: no entry", name);
  return *entry;
}

TEST(Importance, SumsTheSquaresOfWhatAMatrixMeets) {
  const TinyOptions tiny;
  const Collected collected = Collect(tiny);
  const ImatrixEntry& output = Entry(collected.matrix, "output.weight");
  EXPECT_EQ(output.counts, (std::vector<double>{kTokens}));
  EXPECT_EQ(output.sums, collected.squares_of_final);
  EXPECT_EQ(collected.matrix.entries().size(), 2u * 7 + 1);
  for (const auto& [name, entry] : collected.matrix.entries()) {
    EXPECT_EQ(entry.counts, (std::vector<double>{kTokens})) << name;
  }
  // Matrices that meet the same rows.
  EXPECT_EQ(Entry(collected.matrix, "blk.1.attn_q.weight").sums,
            Entry(collected.matrix, "blk.1.attn_v.weight").sums);
  EXPECT_EQ(Entry(collected.matrix, "blk.1.ffn_gate.weight").sums,
            Entry(collected.matrix, "blk.1.ffn_up.weight").sums);
  EXPECT_EQ(Entry(collected.matrix, "blk.1.ffn_down.weight").width(),
            static_cast<uint64_t>(tiny.ff_width));
}

TEST(Importance, KeepsExpertsApart) {
  for (bool apart : {false, true}) {
    TinyOptions tiny;
    tiny.experts = {.count = 8, .used = 2, .width = 32, .apart = apart};
    tiny.architecture = apart ? "llama" : "qwen3moe";
    tiny.qk_norm = !apart;
    const Imatrix matrix = Collect(tiny).matrix;
    for (std::string_view name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      double rows = 0;
      for (int e = 0; e < 8; ++e) {
        const ImatrixEntry* entry = matrix.Find(apart ? fmt::format("blk.0.{}.{}.weight", name, e)
                                                      : fmt::format("blk.0.{}_exps.weight", name));
        if (apart && entry == nullptr) continue;  // never chosen
        ASSERT_NE(entry, nullptr) << name;
        rows += apart ? entry->counts[0] : entry->counts[static_cast<size_t>(e)];
      }
      EXPECT_EQ(rows, 2.0 * kTokens) << name;
    }
  }
}

TEST(Importance, DoesNotDependOnThreadsOrChunks) {
  TinyOptions tiny;
  tiny.architecture = "qwen3moe";
  tiny.qk_norm = true;
  tiny.experts = {.count = 8, .used = 2, .width = 32};
  const Imatrix expected = Collect(tiny).matrix;
  for (int threads : {1, 3}) {
    for (int64_t micro_batch : {7, 512}) {
      const Imatrix found = Collect(tiny, threads, micro_batch).matrix;
      ASSERT_EQ(found.entries().size(), expected.entries().size());
      for (const auto& [name, entry] : expected.entries()) {
        EXPECT_EQ(Entry(found, name).counts, entry.counts) << name;
        const std::vector<double>& sums = Entry(found, name).sums;
        for (size_t i = 0; i < sums.size(); ++i) {
          // Rows of an expert are seen expert after expert in each chunk, but always in the order
          // of the text.
          ASSERT_EQ(sums[i], entry.sums[i]) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
