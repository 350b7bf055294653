#include <doctest/doctest.h>

#include <cmath>

#include "engine/core/error.h"
#include "tests/support/tiny_model.h"
#include "train/calibration.h"

using namespace taper;
using namespace taper::test;

TEST_CASE("calibration: c is the ratio of the running means, the target their bias-corrected mean") {
  Transformer model(tiny_config("gpt2", Variant::internal), Precision::f64);
  scramble(model, 1);
  Calibration calibration(model);
  const std::vector<TaperNorm*> norms = model.tapered_norms();
  REQUIRE(norms.size() == 4);
  // Of 10 tokens: A = 1, 2, ... and B = 4; then A = 3, B = 1 for all.
  std::vector<NormCalibration> first, second(4, {30, 10});
  for (int i = 0; i < 4; ++i) first.push_back({10.0 * (i + 1), 40});
  calibration.observe(first, 20, 10);
  calibration.observe(second, 5, 10);
  CHECK_FALSE(calibration.is_fixed());
  calibration.fix();
  CHECK(calibration.is_fixed());
  for (int i = 0; i < 4; ++i) {
    CHECK(norms[static_cast<size_t>(i)]->c() == doctest::Approx((0.09 * (i + 1) + 0.3) / (0.09 * 4 + 0.1)));
  }
  CHECK(calibration.scale_target().value() == doctest::Approx((0.09 * 2 + 0.1 * 0.5) / (1 - 0.81)));
  CHECK(model.parameter("h.1.norm2.gamma_tilde").master.to_doubles() ==
        model.parameter("h.1.norm2.gamma").master.to_doubles());
  CHECK(model.parameter("h.0.norm1.beta_tilde").master.to_doubles() ==
        model.parameter("h.0.norm1.beta").master.to_doubles());
}

TEST_CASE("calibration: nothing observed, or nothing but zeros, cannot be fixed") {
  Transformer model(tiny_config(), Precision::f64);
  scramble(model, 1);
  Calibration calibration(model);
  CHECK_THROWS_AS(calibration.fix(), Error);
  calibration.observe(std::vector<NormCalibration>(5), 0, 10);
  CHECK_THROWS_WITH_AS(calibration.fix(), doctest::Contains("h.0.norm1"), Error);
  CHECK_THROWS_AS(calibration.observe({}, 0, 10), Error);
}

TEST_CASE("calibration: a restored state goes on to the bit") {
  Transformer model(tiny_config(), Precision::f64), other(tiny_config(), Precision::f64);
  Calibration one(model), two(other);
  one.observe(std::vector<NormCalibration>(5, {1.0 / 3, 0.7}), 0.1, 3);
  two.restore(one.state());
  for (Calibration* each : {&one, &two}) each->observe(std::vector<NormCalibration>(5, {0.3, 0.9}), 0.2, 3);
  one.fix();
  two.fix();
  for (size_t i = 0; i < 5; ++i) CHECK(model.tapered_norms()[i]->c() == other.tapered_norms()[i]->c());
  CHECK(one.scale_target() == two.scale_target());
  CalibrationState wrong;
  wrong.norms.resize(3);
  CHECK_THROWS_AS(two.restore(wrong), Error);
}
