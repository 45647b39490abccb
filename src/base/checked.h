// Sizes from outside go through `Size`: arithmetic that remembers an overflow instead of wrapping.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

// An unsigned 64-bit size that becomes invalid, and stays so, where an operation overflows or underflows.
//   Size bytes = Size(rows) * row_bytes + header;
//   if (!bytes.fits(file_size)) throw Refused(...);
class Size {
 public:
  constexpr Size() = default;
  constexpr Size(uint64_t value) : value_(value) {}  // NOLINT: implicit by design
  static constexpr Size Invalid() {
    Size s;
    s.valid_ = false;
    return s;
  }

  constexpr bool valid() const { return valid_; }
  constexpr bool fits(uint64_t limit) const { return valid_ && value_ <= limit; }
  constexpr std::optional<uint64_t> get() const {
    return valid_ ? std::optional<uint64_t>(value_) : std::nullopt;
  }
  // The value, or `otherwise` where it is invalid.
  constexpr uint64_t value_or(uint64_t otherwise) const { return valid_ ? value_ : otherwise; }

  friend constexpr Size operator+(Size a, Size b) {
    Size r;
    r.valid_ = !__builtin_add_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  friend constexpr Size operator-(Size a, Size b) {
    Size r;
    r.valid_ = !__builtin_sub_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  friend constexpr Size operator*(Size a, Size b) {
    Size r;
    r.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  // Rounds up to a multiple of `unit`, which must not be 0.
  constexpr Size AlignUp(uint64_t unit) const {
    uint64_t rest = value_ % unit;
    return rest == 0 ? *this : *this + Size(unit - rest);
  }

 private:
  uint64_t value_ = 0;
  bool valid_ = true;
};

// Sizes of our own making, known not to overflow.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t unit) { return CeilDiv(a, unit) * unit; }

}  // namespace lockstep
