#include <doctest/doctest.h>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace taper {
namespace {

TEST_CASE("shape: sizes, rows and text") {
  const Shape s{2, 3, 5};
  CHECK(s.numel() == 30);
  CHECK(s.last() == 5);
  CHECK(s.rows() == 6);
  CHECK(s[-1] == 5);
  CHECK(s[0] == 2);
  CHECK(to_string(s) == "[2, 3, 5]");
  CHECK(s.with_last(7) == Shape{2, 3, 7});
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.rank == 0);
  CHECK(to_string(Shape{}) == "[]");
  CHECK(Shape{0, 4}.rows() == 0);
  CHECK(Shape{4, 0}.rows() == 0);
  CHECK_FALSE(Shape{2, 1} == Shape{2});
}

// 64 sequences of 1024 tokens over a vocabulary of 50,257 have more logits than 32 bits count.
TEST_CASE("shape: products are of 64 bits, and those that do not fit are refused") {
  CHECK(Shape{64, 1024, 50257}.numel() == 3293642752);
  CHECK(checked_product(3293642752, 4, "logits") == 13174571008);
  CHECK_THROWS_AS((Shape{int64_t{1} << 40, int64_t{1} << 40}), Error);
  CHECK_THROWS_AS((Shape{-1, 2}), Error);
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1}), Error);
  CHECK_THROWS_WITH_AS(checked_product(int64_t{1} << 62, 2, "wte"), doctest::Contains("wte"), Error);
  CHECK_THROWS_AS(checked_product(-1, 2, "x"), Error);
  CHECK(checked_product(kMostProduct / 2, 2, "x") == kMostProduct);
  CHECK_THROWS_AS(checked_product(kMostProduct / 2, 3, "x"), Error);
}

}  // namespace
}  // namespace taper
