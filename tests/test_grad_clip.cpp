#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "engine/optim/grad_clip.h"

using namespace taper;

TEST_CASE("grad_clip: the norm of huge gradients is added up in double") {
  const Tensor gradient = Tensor::full({100}, 1e20, Dtype::f32);
  const GradientNorm result = gradient_norm({{"w", gradient}}, 1.0);
  CHECK(result.is_finite);
  CHECK(result.norm == doctest::Approx(1.00000002e21).epsilon(1e-9));
  CHECK(1e20 * result.clip_factor == doctest::Approx(0.1).epsilon(1e-7));
}

TEST_CASE("grad_clip: gradients below the limit are left alone, absent ones count as zero") {
  const GradientNorm result = gradient_norm(
      {{"a", Tensor::full({4}, 0.1, Dtype::f64)}, {"b", {}}, {"c", Tensor::full({3}, 0.2, Dtype::f64)}}, 1.0);
  CHECK(result.norm == doctest::Approx(0.4).epsilon(1e-14));
  CHECK(result.clip_factor == 1.0);
  CHECK(gradient_norm({}, 1.0).norm == 0.0);
  CHECK(gradient_norm({{"a", Tensor::full({4}, 50.0, Dtype::f32)}}, std::numeric_limits<double>::infinity())
            .clip_factor == 1.0);
}

TEST_CASE("grad_clip: one element that is no number is found and its tensor named") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Tensor good = Tensor::full({1000}, 1.0, Dtype::f32);
    const Tensor wrong = good.clone();
    wrong.data<float>()[777] = bad;
    const GradientNorm result = gradient_norm({{"a", good}, {"b", wrong}, {"c", wrong}}, 1.0);
    CHECK_FALSE(result.is_finite);
    CHECK(result.first_bad == "b");
    CHECK(result.clip_factor == 0.0);
  }
}

TEST_CASE("grad_clip: a limit that is no positive number is refused") {
  CHECK_THROWS_AS(gradient_norm({}, 0.0), UsageError);
  CHECK_THROWS_AS(gradient_norm({}, std::nan("")), UsageError);
}
