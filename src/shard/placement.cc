#include "shard/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"

namespace lockstep {

Placement Placement::Shard(std::vector<size_t> axes) {
  LOCKSTEP_CHECK(!axes.empty() && std::ranges::is_sorted(axes), "{} axes", axes.size());
  Placement placement;
  placement.axes_ = std::move(axes);
  return placement;
}

Placement Placement::Partial(PartialKind kind) {
  Placement placement;
  placement.partial_ = kind;
  return placement;
}

std::string Placement::ToString(const Shape& shape) const {
  if (partial_) return fmt::format("partial({})", PartialName(*partial_));
  if (axes_.empty()) return "replicate";
  std::string text;
  for (size_t axis : axes_) text += fmt::format("{}{}", text.empty() ? "" : ",", shape[axis].name);
  return "shard(" + text + ")";
}

AxisCut CutAxis(int64_t size, int64_t unit, const std::vector<double>& shares) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  const int64_t units = CeilDiv(size, unit);
  AxisCut cut;
  double before = 0;
  int64_t begin = 0;
  for (double share : shares) {
    before += share;
    // The last rank with a share ends at the end, whatever the rounding of sums.
    const double part = std::min(before / total, 1.0);
    int64_t end = std::min<int64_t>(size, std::llround(part * static_cast<double>(units)) * unit);
    if (share == 0) end = begin;
    cut.runs.push_back({begin, end});
    begin = end;
  }
  return cut;
}

namespace {

// The group that each rank with a share joins: ascending, none left out.
std::vector<int64_t> GroupsOf(int64_t groups, const std::vector<double>& shares) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto ranks = std::ssize(shares);
  std::vector<int64_t> group;
  double before = 0;
  for (int64_t i = 0; i < ranks; ++i) {
    const double share = shares[static_cast<size_t>(i)];
    const double middle = (before + share / 2) / total;
    before += share;
    const int64_t last = group.empty() ? -1 : group.back();
    const int64_t wanted = static_cast<int64_t>(middle * static_cast<double>(groups));
    group.push_back(std::clamp(wanted, std::max(last, groups - (ranks - i)), last + 1));
    group.back() = std::clamp<int64_t>(group.back(), 0, groups - 1);
  }
  return group;
}

}  // namespace

HeadCut CutHeads(int64_t g, int64_t g_unit, int64_t r, int64_t r_unit,
                 const std::vector<double>& shares) {
  std::vector<size_t> ranks;  // with a share
  std::vector<double> their_shares;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;
    ranks.push_back(i);
    their_shares.push_back(shares[i]);
  }
  HeadCut cut;
  if (g_unit != 1 || std::ssize(ranks) <= g) {
    cut.g = CutAxis(g, g_unit, shares);
    cut.r.runs.assign(shares.size(), {0, r});
    return cut;
  }
  cut.g.runs.assign(shares.size(), {0, 0});
  cut.r.runs.assign(shares.size(), {0, 0});
  const std::vector<int64_t> group = GroupsOf(g, their_shares);
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last < ranks.size() && group[last] == group[first]) ++last;
    const AxisCut heads =
        CutAxis(r, r_unit,
                std::vector<double>(their_shares.begin() + static_cast<int64_t>(first),
                                    their_shares.begin() + static_cast<int64_t>(last)));
    for (size_t i = first; i < last; ++i) {
      cut.g.runs[ranks[i]] = {group[i], group[i] + 1};
      cut.r.runs[ranks[i]] = heads.runs[i - first];
    }
    first = last;
  }
  return cut;
}

}  // namespace lockstep
