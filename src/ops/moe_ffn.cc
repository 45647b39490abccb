#include "ops/moe_ffn.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include "base/checked.h"
#include "ops/expert_weights.h"
#include "ops/quantize_row.h"

namespace lockstep {
namespace {

// A row in the form that a format's weights want.
class ReferenceRow {
 public:
  ReferenceRow(const Format& format, const float* x, int64_t k)
      : values_(x, x + k),
        bytes_(static_cast<size_t>(QuantizedRows::Bytes(1, RoundUp(k, kBlockK)))) {
    if (format.group == 0) return;
    codes_ = QuantizedRows::At(bytes_.data(), 1, RoundUp(k, kBlockK));
    QuantizeRowReference(x, k, RowPart(codes_, 0, 0));
  }
  std::vector<float> SegmentSums(const ExpertRows& w, int64_t expert, int64_t row,
                                 int64_t segment) const {
    return w.format->group == 0
               ? lockstep::SegmentSums(*w.format, w.Row(expert, row), w.width, segment,
                                       values_.data())
               : lockstep::SegmentSums(*w.format, w.Row(expert, row), w.width, segment, codes_);
  }

 private:
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  QuantizedRows codes_;
};

// h of one slot, weighed. x: the token's row
std::vector<float> ReferenceHidden(const MoeSettings& settings, const MoeReferenceWeights& experts,
                                   const float* x, int64_t e, float weight) {
  const int64_t f = experts.up.rows;
  std::vector<float> h(static_cast<size_t>(f));
  auto project = [&](const ExpertRows& w, const float* bias) {
    const ReferenceRow row(*w.format, x, w.width);
    std::vector<float> y;
    for (int64_t i = 0; i < f; ++i) {
      y.push_back(row.SegmentSums(w, e, i, 0)[0]);
      if (settings.weigh_input) y.back() *= weight;
      if (settings.biases) y.back() += bias[e * f + i];
    }
    return y;
  };
  const std::vector<float> up = project(experts.up, experts.up_bias);
  if (settings.gated) {
    const std::vector<float> gate = project(experts.gate, experts.gate_bias);
    ActivateGatedReference(settings.gating, gate.data(), up.data(), f, h.data());
  } else {
    ActivateReference(settings.gating.activation, up.data(), f, h.data());
  }
  if (!settings.weigh_input) {
    for (float& v : h) v *= weight;
  }
  return h;
}

// The tree over leaves [first, first + count), of which those that are not there pass their siblings through.
float TreeOf(const std::map<int64_t, float>& leaves, int64_t first, int64_t count) {
  const auto low = leaves.lower_bound(first), high = leaves.lower_bound(first + count);
  if (low == high) return -0.0f;
  if (std::next(low) == high) return low->second;
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  return TreeOf(leaves, first, left) + TreeOf(leaves, first + left, count - left);
}

}  // namespace

std::string MoeFfnRule(const MoeSettings& settings, bool partial) {
  std::string rule = "tk!, tu!, tu!, ";
  if (settings.gated) rule += "efk!, ";
  rule += "efk!, enf";
  if (settings.biases) rule += settings.gated ? ", ef, ef, en" : ", ef, en";
  return rule + (partial ? " -> tpn" : " -> tn");
}

int64_t MoeSegmentLength(const Format& down, int64_t f) {
  return SegmentLength(f, down.group == 0 ? 1 : std::max<int64_t>(down.block, kBlockK));
}

void MoeFfnReference(const MoeSettings& settings, const MoeReferenceWeights& experts,
                     const float* x, const float* ids, const float* weights, int64_t used,
                     float* y) {
  const ExpertRows& down = experts.down;
  const int64_t segment = MoeSegmentLength(*down.format, down.width);
  const int64_t segments = CeilDiv(down.width, segment);
  std::vector<std::map<int64_t, float>> leaves(static_cast<size_t>(down.rows * segments));
  for (int64_t j = 0; j < used; ++j) {
    const int64_t e = ExpertOf(ids[j], down.experts);
    if (e < 0) continue;
    const std::vector<float> h = ReferenceHidden(settings, experts, x, e, weights[j]);
    const ReferenceRow row(*down.format, h.data(), down.width);
    for (int64_t i = 0; i < down.rows; ++i) {
      std::vector<float> sums = row.SegmentSums(down, e, i, segment);
      if (settings.biases) {
        const float weight = settings.weigh_input ? 1 : weights[j];
        sums[0] = std::fma(weight, experts.down_bias[e * down.rows + i], sums[0]);
      }
      for (int64_t s = 0; s < segments; ++s) {
        const float leaf = sums[static_cast<size_t>(s)];
        auto [at, fresh] = leaves[static_cast<size_t>(i * segments + s)].try_emplace(e, leaf);
        if (!fresh) at->second += leaf;
      }
    }
  }
  for (int64_t i = 0; i < down.rows; ++i) {
    std::vector<float> sums;
    for (int64_t s = 0; s < segments; ++s)
      sums.push_back(TreeOf(leaves[static_cast<size_t>(i * segments + s)], 0, down.experts));
    y[i] = SegmentTree(sums);
  }
}

void FoldExpertsReference(const ExpertFold& fold) {
  for (int64_t t = 0; t < fold.tokens; ++t) {
    for (int64_t c = 0; c < kColumnsOfFold; ++c) {
      std::vector<float> open;
      for (int32_t i = fold.begin[t]; i < fold.begin[t + 1]; ++i) {
        float sum = fold.leaves[fold.rows[i] * kColumnsOfFold + c];
        for (int merge = 0; merge < fold.merges[i]; ++merge) {
          sum = open.back() + sum;
          open.pop_back();
        }
        open.push_back(sum);
      }
      fold.y[t * kColumnsOfFold + c] = open.empty() ? -0.0f : open[0];
    }
  }
}

}  // namespace lockstep
