#include "exec/kv_pool.h"

#include <gtest/gtest.h>

#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

const std::vector<StateSpec> kStates = {{"a", 2, 16, 16}, {"b", 1, 24, 8}, {"c", 3, 80, 128}};

TEST(KvPool, LaysEveryStateInAPlaceOfItsOwn) {
  for (const char* k_type : {"F32", "F16", "Q8_0", "Q4_0"}) {
    for (const char* v_type : {"F32", "BF16", "Q5_1", "IQ4_NL"}) {
      const KvTypes types{FindFormat(k_type), FindFormat(v_type)};
      KvPool pool(kStates, types, 3);
      EXPECT_EQ(pool.page_bytes(), KvPool::PageBytes(kStates, types));
      int64_t end = 0;
      for (int32_t i = 0; i < 3; ++i) {
        const StateView view = pool.view(i);
        EXPECT_EQ(view.layout->kv_heads, kStates[static_cast<size_t>(i)].kv_heads);
        EXPECT_EQ(view.k_offset, end);
        EXPECT_GE(view.v_offset, view.k_offset + view.layout->k_bytes());
        EXPECT_EQ(view.k_offset % 64, 0);
        EXPECT_EQ(view.v_offset % 64, 0);
        end = (view.v_offset + view.layout->v_bytes() + 63) / 64 * 64;
      }
      EXPECT_EQ(pool.page_bytes(), end);
      EXPECT_EQ(pool.page(2) - pool.page(0), 2 * end);
    }
  }
}

TEST(KvPool, RefusesTypesThatCannotBeCached) {
  for (const char* type : {"Q4_K", "Q6_K", "I32"}) {
    const Format* format = FindFormat(type);
    ASSERT_NE(format, nullptr) << type;
    EXPECT_EQ(
        MessageOf([&] {
          KvPool(kStates, {format, FindFormat("F16")}, 1);
        }),
        fmt::format(
            "cache type: expected one of f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl, found {}",
            type));
    EXPECT_NE(MessageOf([&] { KvPool(kStates, {FindFormat("F16"), format}, 1); }), "");
  }
}

TEST(KvPool, FailsForSizesThatCannotBe) {
  const KvTypes types{FindFormat("F16"), FindFormat("F16")};
  EXPECT_EQ(MessageOf([&] { KvPool(kStates, types, INT64_MAX); }),
            "KV cache: expected a size that can be addressed, found an overflow");
}

}  // namespace
}  // namespace lockstep::test
