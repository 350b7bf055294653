#include <doctest/doctest.h>

#include <cmath>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace taper {
namespace {

using Doubles = std::vector<double>;

TEST_CASE("tensor: making, reading, casting") {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(a.dtype() == Dtype::f32);
  CHECK(a.bytes() == 24);
  CHECK(a.dim(-1) == 3);
  CHECK(describe(a) == "f32 [2, 3]");
  CHECK(a.to_doubles() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(Tensor::full({2}, 0.1, Dtype::bf16).to_doubles() == Doubles{0.10009765625, 0.10009765625});
  CHECK(Tensor::zeros({3}, Dtype::i32).to_doubles() == Doubles{0, 0, 0});
  CHECK(a.cast(Dtype::f64).dtype() == Dtype::f64);
  CHECK(a.cast(Dtype::i32).to_doubles() == a.to_doubles());
  CHECK(Tensor::full({1, 1}, 7, Dtype::f64).item() == 7);
  CHECK(Tensor::full({}, 7, Dtype::f64).item() == 7);
}

TEST_CASE("tensor: copies share, clones do not") {
  const Tensor a = Tensor::zeros({4, 2}, Dtype::f32);
  const Tensor handle = a, view = a.rows(1, 3), reshaped = a.reshaped({8}), clone = a.clone();
  view.data<float>()[0] = 5;
  CHECK(a.to_doubles() == Doubles{0, 0, 5, 0, 0, 0, 0, 0});
  CHECK(reshaped.to_doubles()[2] == 5);
  CHECK(clone.to_doubles()[2] == 0);
  CHECK(view.shape() == Shape{2, 2});
  CHECK(a.shares_storage(view));
  CHECK_FALSE(a.shares_storage(clone));
  CHECK_FALSE(a.has_sole_storage());
  CHECK(clone.has_sole_storage());
  view.copy_from(Tensor::full({2, 2}, 9, Dtype::f64));
  CHECK(handle.to_doubles() == Doubles{0, 0, 9, 9, 9, 9, 0, 0});
}

TEST_CASE("tensor: misuse is refused by name") {
  const Tensor a = Tensor::zeros({2, 3}, Dtype::f32), none;
  CHECK_FALSE(none.is_defined());
  CHECK_THROWS_WITH_AS(none.shape(), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(none.data<float>(), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(a.data<double>(), doctest::Contains("holds f32, asked for f64"), Error);
  CHECK_THROWS_AS(a.item(), Error);
  CHECK_THROWS_AS(a.reshaped({4}), Error);
  CHECK_THROWS_AS(a.rows(1, 3), Error);
  CHECK_THROWS_AS(a.rows(2, 1), Error);
  CHECK_THROWS_AS(a.copy_from(Tensor::zeros({3, 2}, Dtype::f32)), Error);
  CHECK_THROWS_AS(Tensor::from(std::vector<float>{1, 2}, {3}), Error);
}

TEST_CASE("tensor: an undefined tensor is an absent view") {
  const Tensor none, a = Tensor::zeros({2}, Dtype::bf16);
  CHECK_FALSE(static_cast<bool>(ConstView(none)));
  const ConstView view = a;
  CHECK(static_cast<bool>(view));
  CHECK(view.dtype == Dtype::bf16);
  CHECK(view.numel() == 2);
}

}  // namespace
}  // namespace taper
