#include "tensor/axis.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Shape, PrintsNamesAndSizesInOrder) {
  EXPECT_EQ((Shape{{'t', 512}, {'g', 4}, {'d', 64, 2}}).ToString(), "[t=512, g=4, d=64]");
  EXPECT_EQ(Shape().ToString(), "[]");
}

TEST(Shape, CountsItsElementsAndNoticesOverflow) {
  EXPECT_EQ(Shape().Count().get(), 1u);
  EXPECT_EQ((Shape{{'t', 3}, {'k', 5}}).Count().get(), 15u);
  EXPECT_EQ((Shape{{'t', 0}, {'k', 5}}).Count().get(), 0u);
  EXPECT_FALSE((Shape{{'t', int64_t{1} << 40}, {'k', int64_t{1} << 40}}).Count().valid());
}

TEST(Shape, FindsAxesByName) {
  Shape shape{{'t', 7}, {'g', 2}, {'d', 64}};
  EXPECT_EQ(shape.Find('t'), 0u);
  EXPECT_EQ(shape.Find('d'), 2u);
  EXPECT_EQ(shape.Find('v'), std::nullopt);
}

TEST(Shape, EqualityNeedsNameSizeUnitAndRank) {
  Shape shape{{'t', 7}, {'d', 64, 16}};
  EXPECT_EQ(shape, (Shape{{'t', 7}, {'d', 64, 16}}));
  for (const Shape& other :
       {Shape{}, Shape{{'t', 7}}, Shape{{'s', 7}, {'d', 64, 16}}, Shape{{'t', 8}, {'d', 64, 16}},
        Shape{{'t', 7}, {'d', 64, 32}}, Shape{{'t', 7}, {'d', 64, 16}, {'r', 1}}}) {
    EXPECT_FALSE(shape == other) << other.ToString();
  }
}

TEST(ShapeDeathTest, RejectsAxesThatNoContractHas) {
  EXPECT_DEATH((Shape{{'z', 1}}), "axis 'z'");
  EXPECT_DEATH((Shape{{'t', -1}}), "axis t=-1");
  EXPECT_DEATH((Shape{{'t', 1, 0}}), "unit 0");
  EXPECT_DEATH((Shape{{'t', 1}, {'s', 1}, {'g', 1}, {'r', 1}, {'d', 1}, {'k', 1}, {'n', 1}}),
               "more than 6 axes");
  EXPECT_DEATH((Shape{{'t', 1}}[1]), "axis 1 of 1");
}

}  // namespace
}  // namespace lockstep
