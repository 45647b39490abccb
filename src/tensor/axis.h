// Axes: dimensions with a name, a size and a unit, the words of every contract, print and sharding
// rule.
//
//   t tokens           s cached positions   g KV heads          r query heads per KV head
//   d head width       k model width in     n model width out   f feed-forward width
//   e experts          u experts used       v vocabulary        l layers
//   p parts of a sum that ranks share
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {

inline constexpr std::string_view kAxisNames = "tsgrdknfeuvlp";

struct Axis {
  char name = 't';   // one of kAxisNames
  int64_t size = 0;  // elements
  int64_t unit = 1;  // the smallest piece that may be cut, in elements

  bool operator==(const Axis&) const = default;
};

// Axes from slowest to fastest in memory, at most kCapacity; a scalar has none.
class Shape {
 public:
  static constexpr size_t kCapacity = 6;

  Shape() = default;
  Shape(std::initializer_list<Axis> axes) {
    for (const Axis& axis : axes) Append(axis);
  }

  // Adds the fastest axis. A name outside the alphabet, a size below 0, a unit below 1 or a seventh
  // axis is a bug: sizes from files are checked before they become axes.
  void Append(const Axis& axis) {
    LOCKSTEP_CHECK(kAxisNames.find(axis.name) != std::string_view::npos, "axis '{}'", axis.name);
    LOCKSTEP_CHECK(axis.size >= 0 && axis.unit >= 1, "axis {}={}, unit {}", axis.name, axis.size,
                   axis.unit);
    LOCKSTEP_CHECK(rank_ < kCapacity, "a shape of more than {} axes", kCapacity);
    axes_[rank_++] = axis;
  }

  size_t rank() const { return rank_; }
  const Axis* begin() const { return axes_.data(); }
  const Axis* end() const { return axes_.data() + rank_; }
  const Axis& operator[](size_t i) const {
    LOCKSTEP_CHECK(i < rank_, "axis {} of {}", i, rank_);
    return axes_[i];
  }

  // The position of the first axis of that name.
  std::optional<size_t> Find(char name) const {
    const Axis* at =
        std::find_if(begin(), end(), [&](const Axis& axis) { return axis.name == name; });
    return at == end() ? std::nullopt : std::optional<size_t>(static_cast<size_t>(at - begin()));
  }

  // Number of elements: 1 for a scalar, invalid where it overflows.
  Size Count() const {
    Size count = 1;
    for (const Axis& axis : *this) count = count * Size(static_cast<uint64_t>(axis.size));
    return count;
  }

  // "[t=512, g=4, d=64]"; units are left out.
  std::string ToString() const {
    std::string text;
    for (const Axis& axis : *this) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
    }
    return "[" + text + "]";
  }

  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<Axis, kCapacity> axes_;
  size_t rank_ = 0;
};

}  // namespace lockstep
