// How much memory opening takes: counted by replacing the allocator of this test program.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "gguf/test_files.h"

namespace {

std::atomic<size_t> live_bytes = 0;
std::atomic<size_t> peak_bytes = 0;

void* Allocate(size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  size_t live = live_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }

namespace lockstep::test {
namespace {

using Type = GgufValueType;

// The most memory at once that parsing takes.
size_t PeakOf(const std::string& bytes) {
  size_t before = live_bytes;
  peak_bytes = before;
  RefusalOf<GgufFile>(bytes, "m.gguf");
  return peak_bytes - before;
}

// Different short names.
std::string ShortName(size_t i) {
  std::string name;
  for (++i; i != 0; i /= 250) name.push_back(static_cast<char>(i % 250 + 1));
  return name;
}

TEST(GgufMemory, StaysBelowTwiceTheFileWhateverTheFileHolds) {
  constexpr size_t kMany = 50000;
  RawGguf pairs, tensors, doubles, arrays, strings;
  for (size_t i = 0; i < kMany; ++i) {
    pairs.pairs.push_back(Pair(ShortName(i), Type::kUint8, "x"));
    tensors.infos.push_back(Info(ShortName(i), {}, 24, 8 * i));
    doubles.infos.push_back(Info("same", {}, 24, 8 * i));
  }
  for (RawGguf* file : {&tensors, &doubles}) {
    file->pairs = {Pair(kGgufAlignmentKey, Type::kUint8, "\x08")};
    file->alignment = 8;
    file->data.assign(8 * kMany, 'x');
  }
  std::string many_empty, many_words;
  for (size_t i = 0; i < kMany; ++i) {
    many_empty += Array(Type::kString, 0, "");
    many_words += Str("");
  }
  arrays.pairs = {Pair("a", Type::kArray, Array(Type::kArray, kMany, many_empty))};
  strings.pairs = {Pair("s", Type::kArray, Array(Type::kString, kMany, many_words))};
  RawGguf huge_counts = pairs;
  huge_counts.extra_pairs = kMany / 100;
  huge_counts.extra_tensors = kMany / 2;

  for (const RawGguf* file : {&pairs, &tensors, &doubles, &arrays, &strings, &huge_counts}) {
    const std::string bytes = file->Bytes();
    EXPECT_LT(PeakOf(bytes), 2 * bytes.size());
  }
  // The counter counts.
  EXPECT_GT(PeakOf(pairs.Bytes()), kMany * sizeof(uint32_t));
}

}  // namespace
}  // namespace lockstep::test
