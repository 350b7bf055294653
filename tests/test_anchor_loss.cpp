#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/tape.h"
#include "train/anchor_loss.h"

using namespace taper;

namespace {

const std::vector<double> kRows{3, 4, 0, 0, 1, -1, 1, -1};  // |h| = 5 and 2, r = 2.5 and 1

AnchorLoss anchor(double lambda, NormKind kind = NormKind::rms) {
  ModelConfig config;
  config.norm = kind;
  config.eps = 1e-30;
  return AnchorLoss(config, lambda);
}

}  // namespace

TEST_CASE("anchor: statistics of the scale") {
  const Tensor h = Tensor::from(kRows, {1, 2, 4});
  const ScaleSums sums = anchor(0).measure(h, 2.0);
  CHECK(sums.s == doctest::Approx(3.5));
  CHECK(sums.greatest_s == doctest::Approx(2.5));
  CHECK(sums.squared_deviation == doctest::Approx(0.25 + 1));
  // The first row's mean is 1.75, and sigma^2 = 6.25 - 1.75^2.
  CHECK(anchor(0, NormKind::layer).measure(h, {}).s == doctest::Approx(std::sqrt(6.25 - 1.75 * 1.75) + 1));
}

TEST_CASE("anchor: off without a target or without a weight") {
  CHECK_FALSE(anchor(0.1).is_active({}));
  CHECK_FALSE(anchor(0).is_active(1.0));
  CHECK(anchor(0.1).is_active(1.0));
}

TEST_CASE("anchor: its own gradient, taken apart, leaves nothing for the cross-entropy") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    Tensor h = Tensor::from(kRows, {1, 2, 4});
    h.set_requires_grad();
    ScaleSums sums;
    const Tensor loss = anchor(0.5, kind).loss(h, 2.0, 2, sums);
    CHECK(loss.item() == doctest::Approx(0.5 * sums.squared_deviation / 2));
    backward(loss);
    const AnchorLoss::Parts parts = anchor(0.5, kind).take_apart(h, h.grad().clone(), 2.0, 2);
    CHECK(parts.of_loss.norm > 0.1);
    CHECK(parts.of_cross_entropy.norm < 1e-12);
    // Of the mean, times the tokens: 2 lambda (s - t) |h'|^2 / (C s |h|) for each row.
    if (kind == NormKind::rms) {
      CHECK(parts.of_loss.outward == doctest::Approx(2 * 0.5 * (0.5 * 5 / 10 - 1.0 * 2 / 4)));
      CHECK(parts.of_loss.magnitude == doctest::Approx(parts.of_loss.norm));
    }
  }
}
