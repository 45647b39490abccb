// Placements: where the numbers of a value are, on each of the two axes of a mesh of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/factor_rule.h"
#include "tensor/axis.h"

namespace lockstep {

// Ranks in two directions. Along `tensor` ranks share every layer, along `pipeline` they share the layers out. Rank
// number = stage * tensor + place within the stage.
struct Mesh {
  int32_t tensor = 1;
  int32_t pipeline = 1;

  int32_t ranks() const { return tensor * pipeline; }
  int32_t stage(int32_t rank) const { return rank / tensor; }
  int32_t place(int32_t rank) const { return rank % tensor; }
  bool operator==(const Mesh&) const = default;
};

// Of one value, along the mesh axis `tensor`: complete on every rank, cut along some of its axes, or a part of a reduction.
class Placement {
 public:
  static Placement Replicate() { return {}; }
  // Cut along these axes of the value's shape, ascending; two where ranks share a KV head and cut its query heads.
  static Placement Shard(std::vector<size_t> axes);
  static Placement Partial(PartialKind kind);

  bool replicated() const { return axes_.empty() && !partial_; }
  bool sharded() const { return !axes_.empty(); }
  const std::vector<size_t>& axes() const { return axes_; }
  std::optional<PartialKind> partial() const { return partial_; }

  // "replicate", "shard(g)", "shard(g,r)", "partial(sum)".
  std::string ToString(const Shape& shape) const;
  bool operator==(const Placement&) const = default;

 private:
  std::vector<size_t> axes_;
  std::optional<PartialKind> partial_;
};

// What each rank of a stage has of one axis.
struct AxisCut {
  struct Run {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
    bool operator==(const Run&) const = default;
  };
  std::vector<Run>
      runs;  // by place in the stage; may be empty, and alike where ranks share a KV head
  bool operator==(const AxisCut&) const = default;
};

// Deals [0, size) in contiguous runs, cut at multiples of `unit`, each boundary as near as may be to the shares before it. A share of 0
// gets nothing; so may others where there are fewer units than ranks. Shares are not negative and not all 0.
AxisCut CutAxis(int64_t size, int64_t unit, const std::vector<double>& shares);

// Deals g KV heads with r query heads each, so that each rank has whole KV heads, or some of the query heads of one. `r_unit`: query heads that
// stay together.
struct HeadCut {
  AxisCut g, r;
};
HeadCut CutHeads(int64_t g, int64_t g_unit, int64_t r, int64_t r_unit,
                 const std::vector<double>& shares);

}  // namespace lockstep
