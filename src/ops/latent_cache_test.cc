// V in K: the cache of latent attention, whose V is the first numbers of K.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/attention.h"
#include "ops/kernels.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::RandomRow;

constexpr int64_t kPositions = 600;

// Keys of some positions in pages whose unused bytes are NaN, with V in them or beside them.
struct Cache {
  KvLayout layout;
  int64_t v_offset;
  std::vector<std::byte> bytes;
  std::vector<const std::byte*> pages;
  std::vector<AttentionRow> rows;  // of every position

  Cache(const KvLayout& the_layout, int64_t positions) : layout(the_layout) {
    v_offset = layout.values_in_keys ? 0 : layout.k_bytes();
    const int64_t page_bytes = layout.k_bytes() + layout.v_bytes();
    const int64_t count = (positions + kPageTokens - 1) / kPageTokens;
    bytes.assign(static_cast<size_t>(count * page_bytes), static_cast<std::byte>(0xFF));
    for (int64_t i = 0; i < count; ++i) pages.push_back(bytes.data() + i * page_bytes);
    for (int64_t p = 0; p < positions; ++p) rows.push_back({pages.data(), p});
  }

  void Append(KvAppendFn* append, const std::vector<float>& keys,
              const std::vector<float>& values) {
    const KvAppendTask task{layout,
                            0,
                            v_offset,
                            keys.data(),
                            layout.kv_heads * layout.dk,
                            layout.values_in_keys ? nullptr : values.data(),
                            layout.kv_heads * layout.dv,
                            rows.data(),
                            static_cast<int64_t>(rows.size())};
    Fenced<std::byte> scratch(kKvAppendScratch);
    append(task, 0, task.tokens, scratch.data());
    ASSERT_TRUE(scratch.intact());
  }

  std::vector<float> Attend(AttentionFn* attention, int64_t heads, const std::vector<float>& q,
                            const std::vector<AttentionRow>& places) const {
    std::vector<float> out(places.size() *
                           static_cast<size_t>(layout.kv_heads * heads * layout.dv));
    AttentionTask task{};
    task.layout = layout;
    task.v_offset = v_offset;
    task.heads_per_kv = heads;
    task.scale = 0.2f;
    task.q = q.data();
    task.q_stride = layout.kv_heads * heads * layout.dk;
    task.out = out.data();
    task.out_stride = layout.kv_heads * heads * layout.dv;
    task.rows = places.data();
    task.tokens = static_cast<int64_t>(places.size());
    Fenced<std::byte> scratch(AttentionScratchBytes(layout, heads));
    attention(task, 0, AttentionItems(task), scratch.data());
    EXPECT_TRUE(scratch.intact());
    return out;
  }
};

TEST(LatentCache, GivesTheBitsOfValuesBesideTheirKeys) {
  constexpr int64_t kSizes[][2] = {{576, 512}, {80, 64}, {40, 33}, {17, 17}};
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_1", "Q5_0", "IQ4_NL"}) {
    for (const auto& [dk, dv] : kSizes) {
      // Blocks of V end where V ends, those of K where K does: equal only at whole blocks.
      const Format& format = *FindFormat(type);
      if (format.block > 1 && dv % 32 != 0) continue;
      for (int64_t heads : {1, 5, 49}) {
        if (dk == 576 && heads != 5) continue;
        SCOPED_TRACE(fmt::format("{} {}/{} {} heads", type, dk, dv, heads));
        Cache in_keys({2, dk, dv, &format, &format, true}, kPositions);
        Cache beside({2, dk, dv, &format, &format}, kPositions);
        const std::vector<float> keys = RandomRow(kPositions * 2 * dk, 1, 5);
        std::vector<float> values;
        for (int64_t row = 0; row < kPositions * 2; ++row) {
          values.insert(values.end(), keys.begin() + row * dk, keys.begin() + row * dk + dv);
        }
        beside.Append(KvAppendReference, keys, values);
        in_keys.Append(KvAppendReference, keys, values);
        std::vector<AttentionRow> places, other_places;
        for (int64_t p : {0, 63, 64, 599}) {
          places.push_back({in_keys.pages.data(), p});
          other_places.push_back({beside.pages.data(), p});
        }
        const std::vector<float> q = RandomRow(4 * 2 * heads * dk, 1, 6);
        const std::vector<float> expected =
            beside.Attend(AttentionReference, heads, q, other_places);
        ASSERT_EQ(FirstDifference(expected, in_keys.Attend(AttentionReference, heads, q, places)),
                  -1);
        for (Isa isa : AvailableIsas()) {
          SCOPED_TRACE(IsaName(isa));
          Cache found(in_keys.layout, kPositions);
          found.Append(KernelsFor(isa).kv_append, keys, values);
          ASSERT_EQ(found.bytes, in_keys.bytes);
          ASSERT_EQ(FirstDifference(expected,
                                    in_keys.Attend(KernelsFor(isa).attention, heads, q, places)),
                    -1);
        }
      }
    }
  }
}

TEST(LatentCache, TakesNoRoomForValues) {
  const Format &f16 = *FindFormat("F16"), &q8_0 = *FindFormat("Q8_0");
  const KvLayout plain{1, 576, 512, &f16, &f16, true}, blocks{1, 576, 512, &q8_0, &q8_0, true};
  EXPECT_EQ(plain.k_bytes(), 64 * 576 * 2);
  EXPECT_EQ(plain.v_bytes(), 0);
  EXPECT_EQ(blocks.k_bytes(), 64 * 18 * 34);
  EXPECT_EQ(blocks.v_bytes(), 0);
  const KvLayout keys_only{1, 128, 0, &f16, &q8_0};
  EXPECT_EQ(keys_only.v_bytes(), 0);
}

TEST(KvLayout, CopiesPositionsAsTheyAreCached) {
  for (const char* type : {"F32", "F16", "Q8_0"}) {
    for (bool in_keys : {false, true}) {
      const Format& format = *FindFormat(type);
      const KvLayout layout{2, 40, in_keys ? 40 : 24, &format, &format, in_keys};
      Cache from(layout, 130), to(layout, 64);
      const std::vector<float> keys = RandomRow(130 * 2 * layout.dk, 1, 7),
                               values = RandomRow(130 * 2 * layout.dv, 1, 8);
      from.Append(KvAppendReference, keys, values);
      const KvPlace place{0, from.v_offset};
      for (int64_t i = 0; i < 64; ++i) {
        const int64_t p = 2 * i + 1;
        CopyPosition(layout, from.pages[p / 64], place, p % 64, const_cast<std::byte*>(to.pages[0]),
                     place, i);
      }
      for (int64_t i = 0; i < 64; ++i) {
        for (int64_t g = 0; g < 2; ++g) {
          const int64_t p = 2 * i + 1;
          std::vector<float> a(40), b(40), c(40), d(40);
          ReadKey(layout, from.pages[p / 64] + g * layout.k_head_bytes(), p % 64, a.data());
          ReadKey(layout, to.pages[0] + g * layout.k_head_bytes(), i, b.data());
          ReadValue(layout, from.pages[p / 64] + from.v_offset + g * layout.v_head_bytes(), p % 64,
                    c.data());
          ReadValue(layout, to.pages[0] + to.v_offset + g * layout.v_head_bytes(), i, d.data());
          ASSERT_EQ(a, b) << type;
          ASSERT_EQ(c, d) << type;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
