// Rows to try a row operation on, and the comparison of its kernels with its reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/kernels.h"

namespace lockstep::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An array between two fences of known bytes; starts at no alignment beyond its element's.
template <typename T>
class Fenced {
 public:
  explicit Fenced(size_t size) : size_(size), bytes_(2 * kFence + size * sizeof(T), kPattern) {}
  explicit Fenced(const std::vector<T>& values) : Fenced(values.size()) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + kFence); }
  std::vector<T> values() { return std::vector<T>(data(), data() + size_); }
  bool intact() const {
    for (size_t i = 0; i < kFence; ++i) {
      if (bytes_[i] != kPattern || bytes_[bytes_.size() - 1 - i] != kPattern) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kFence = 132;
  static constexpr uint8_t kPattern = 0xC3;
  size_t size_;
  std::vector<uint8_t> bytes_;
};

struct Row {
  std::string name;
  std::vector<float> values;
};

inline std::vector<float> RandomRow(int64_t n, float size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& x : row) x = normal(generator) * size;
  return row;
}

// Finite rows of length n: usual, huge, tiny, denormal, constant, of one large element, of mixed sizes.
inline std::vector<Row> FiniteRows(int64_t n) {
  std::vector<Row> rows;
  for (float size : {1.0f, 1e-3f, 3e5f, 1e20f, 5e37f, 1e-20f, 1e-30f, 1e-38f, 1e-43f}) {
    rows.push_back({fmt::format("normal * {}", size), RandomRow(n, size, 1)});
  }
  for (float c : {0.0f, -0.0f, 1.0f, -3.4e38f, 1e-45f}) {
    rows.push_back({fmt::format("all {}", c), std::vector<float>(static_cast<size_t>(n), c)});
  }
  std::vector<float> spike = RandomRow(n, 1e-3f, 2), mixed = RandomRow(n, 1, 3);
  if (n > 0) spike[static_cast<size_t>(n / 2)] = 3e5f;
  for (size_t i = 0; i < mixed.size(); ++i)
    mixed[i] *= std::ldexp(1.0f, static_cast<int>(i * 37 % 200) - 100);
  rows.push_back({"spike", spike});
  rows.push_back({"mixed", mixed});
  return rows;
}

// The above, and rows with NaN and infinities at places that move with the length, and of any bits.
inline std::vector<Row> Rows(int64_t n) {
  std::vector<Row> rows = FiniteRows(n);
  if (n == 0) return rows;
  for (float odd : {kNan, kInf, -kInf}) {
    std::vector<float> row = RandomRow(n, 2, 4);
    row[static_cast<size_t>(n * 5 / 7)] = odd;
    rows.push_back({fmt::format("with {}", odd), row});
    rows.push_back({fmt::format("all {}", odd), std::vector<float>(static_cast<size_t>(n), odd)});
  }
  std::mt19937 generator(static_cast<uint32_t>(n));
  std::vector<float> any(static_cast<size_t>(n));
  for (float& x : any) x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
  rows.push_back({"any bits", any});
  return rows;
}

inline std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 70; ++n) sizes.push_back(n);
  for (int64_t n : {127, 128, 129, 255, 1000, 4097}) sizes.push_back(n);
  return sizes;
}

// The first place where two arrays differ in bits, or -1; any NaN equals any NaN.
template <typename T>
int64_t FirstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
    if (a[i] != a[i] && b[i] != b[i]) continue;
    return static_cast<int64_t>(i);
  }
  return -1;
}

// Runs an operation from x: [n] to y: [n], by the reference where `kernels` is null.
using RowOperation =
    std::function<void(const Kernels* kernels, const float* x, int64_t n, float* y)>;

// Kernel equals reference, bit for bit, on every instruction set, size and row; also in place; fences stay.
inline void ExpectKernelsEqualReference(const RowOperation& operation,
                                        const std::vector<int64_t>& sizes = Sizes()) {
  for (int64_t n : sizes) {
    for (const Row& row : Rows(n)) {
      Fenced<float> x(row.values), expected(row.values.size());
      operation(nullptr, x.data(), n, expected.data());
      for (Isa isa : AvailableIsas()) {
        SCOPED_TRACE(fmt::format("{}, {} elements, {}", IsaName(isa), n, row.name));
        const Kernels& kernels = KernelsFor(isa);
        Fenced<float> found(row.values.size()), in_place(row.values);
        operation(&kernels, x.data(), n, found.data());
        operation(&kernels, in_place.data(), n, in_place.data());
        ASSERT_EQ(FirstDifference(expected.values(), found.values()), -1);
        ASSERT_EQ(FirstDifference(expected.values(), in_place.values()), -1);
        ASSERT_EQ(FirstDifference(x.values(), row.values), -1);
        ASSERT_TRUE(found.intact() && in_place.intact() && x.intact());
      }
    }
  }
}

}  // namespace lockstep::testing
