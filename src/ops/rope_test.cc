#include "ops/rope.h"

#include <gtest/gtest.h>

#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::RandomRow;
using testing::Row;
using testing::Rows;

struct Pairing {
  const char* name;
  RopeHalvesFn* reference;
  RopeHalvesFn* Kernels::*kernel;
};
const Pairing kPairings[] = {{"halves", RopeHalvesReference, &Kernels::rope_halves},
                             {"pairs", RopePairsReference, &Kernels::rope_pairs}};

TEST(Rope, KernelsEqualReference) {
  for (const Pairing& pairing : kPairings) {
    for (int64_t n_rot = 0; n_rot <= 140; n_rot += 2) {
      std::vector<float> cos = RandomRow(n_rot / 2, 1, 5), sin = RandomRow(n_rot / 2, 1, 6);
      for (const Row& row : Rows(n_rot)) {
        Fenced<float> expected(row.values);
        pairing.reference(expected.data(), cos.data(), sin.data(), n_rot);
        for (Isa isa : AvailableIsas()) {
          Fenced<float> found(row.values);
          (KernelsFor(isa).*pairing.kernel)(found.data(), cos.data(), sin.data(), n_rot);
          ASSERT_EQ(FirstDifference(expected.values(), found.values()), -1)
              << IsaName(isa) << ' ' << pairing.name << ' ' << n_rot << ' ' << row.name;
          ASSERT_TRUE(found.intact());
        }
      }
    }
  }
}

TEST(Rope, LeavesDimsBeyondRotaryAlone) {
  for (const Pairing& pairing : kPairings) {
    for (Isa isa : AvailableIsas()) {
      std::vector<float> before = RandomRow(80, 1, 1), after = before;
      std::vector<float> cos(19, 0.5f), sin(19, 0.25f);
      (KernelsFor(isa).*pairing.kernel)(after.data(), cos.data(), sin.data(), 38);
      for (size_t i = 0; i < 80; ++i) {
        if (i < 38) {
          EXPECT_NE(after[i], before[i]);
        } else {
          EXPECT_EQ(after[i], before[i]);
        }
      }
    }
  }
}

TEST(Rope, TurnsPairsByTheirAngle) {
  // A quarter turn takes (1, 0) to (0, 1) and (0, 1) to (-1, 0).
  float cos[2] = {0, 1}, sin[2] = {1, 0};
  float halves[4] = {1, 7, 0, 8}, pairs[4] = {0, 1, 7, 8};
  RopeHalvesReference(halves, cos, sin, 4);
  RopePairsReference(pairs, cos, sin, 4);
  EXPECT_EQ(std::vector<float>(halves, halves + 4), (std::vector<float>{0, 7, 1, 8}));
  EXPECT_EQ(std::vector<float>(pairs, pairs + 4), (std::vector<float>{-1, 0, 7, 8}));
}

}  // namespace
}  // namespace lockstep
