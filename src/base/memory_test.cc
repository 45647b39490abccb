#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

std::string ErrorOf(Size bytes) {
  try {
    Buffer buffer(bytes, "kv cache");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFailed);
    return error.what();
  }
  return "";
}

TEST(Buffer, IsZeroedAlignedAndWritableToItsLastByte) {
  for (size_t size : {size_t{1}, size_t{63}, size_t{4096}, size_t{4097}, size_t{2} << 20,
                      (size_t{5} << 20) + 3}) {
    Buffer buffer{Size(size)};
    ASSERT_EQ(buffer.size(), size);
    size_t alignment = size >= (size_t{2} << 20) ? size_t{2} << 20 : kMemoryAlignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u) << size;
    std::span<std::byte> bytes = buffer.bytes();
    EXPECT_TRUE(
        std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
    bytes.front() = std::byte{1};
    bytes.back() = std::byte{2};
    EXPECT_EQ(bytes.back(), std::byte{2});
  }
}

TEST(Buffer, OfNoBytesIsEmpty) {
  EXPECT_TRUE(Buffer().empty());
  EXPECT_TRUE(Buffer(Size(0)).empty());
}

TEST(Buffer, MovesLeaveTheSourceEmpty) {
  Buffer first{Size(100)};
  std::byte* data = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: the moved-from state is the subject
  Buffer third{Size(5)};
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 100u);
  EXPECT_TRUE(second.empty());  // NOLINT
}

TEST(Buffer, RefusedMemoryIsAnErrorWithItsSize) {
  uint64_t huge = uint64_t{1} << 60;
  EXPECT_EQ(ErrorOf(huge),
            "kv cache: allocating 1152921504606846976 bytes: Cannot allocate memory");
  EXPECT_EQ(ErrorOf(Size(huge) * huge),
            "kv cache: expected a size that can be addressed, found an overflow");
  EXPECT_EQ(ErrorOf(UINT64_MAX),
            "kv cache: expected a size that can be addressed, found 18446744073709551615 bytes");
}

TEST(Arena, HandsOutAlignedPiecesThatDoNotOverlap) {
  Arena arena(Arena::Rounded(100) + Arena::Rounded(7 * sizeof(double)) + Size(1));
  std::span<std::byte> a = arena.Take(100);
  std::span<double> b = arena.Take<double>(7);
  std::span<std::byte> c = arena.Take(1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % kMemoryAlignment, 0u);
  EXPECT_GE(reinterpret_cast<std::byte*>(b.data()), a.data() + a.size());
  EXPECT_GE(c.data(), reinterpret_cast<std::byte*>(b.data() + b.size()));
  EXPECT_EQ(arena.used(), arena.size());
  arena.Rewind();
  EXPECT_EQ(arena.Take(10).data(), a.data());
}

TEST(ArenaDeathTest, TakingMoreThanPlannedIsACheckedBug) {
  Arena arena{Size(128)};
  arena.Take(65);
  EXPECT_DEATH(arena.Take(1), "arena of 128 bytes: 128 used, 1 asked");
}

}  // namespace
}  // namespace lockstep
