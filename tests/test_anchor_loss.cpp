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

ScaleSums measured(const AnchorLoss& anchor, const Tensor& h, std::optional<double> target) {
  const Tensor sums = Tensor::empty({3}, Dtype::f64);
  anchor.measure(sums, h, target);
  return ScaleSums::from(sums.data<double>());
}

}  // namespace

TEST_CASE("anchor: statistics of the scale") {
  const Tensor h = Tensor::from(kRows, {1, 2, 4});
  const ScaleSums sums = measured(anchor(0), h, 2.0);
  CHECK(sums.s == doctest::Approx(3.5));
  CHECK(sums.greatest_s == doctest::Approx(2.5));
  CHECK(sums.squared_deviation == doctest::Approx(0.25 + 1));
  // The first row's mean is 1.75, and sigma^2 = 6.25 - 1.75^2.
  CHECK(measured(anchor(0, NormKind::layer), h, {}).s == doctest::Approx(std::sqrt(6.25 - 1.75 * 1.75) + 1));
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
    const Tensor sums = Tensor::empty({3}, Dtype::f64), whole = sums.clone(), rest = sums.clone();
    const Tensor loss = anchor(0.5, kind).loss(sums, h, 2.0, 2);
    CHECK(loss.item() == doctest::Approx(0.5 * ScaleSums::from(sums.data<double>()).squared_deviation / 2));
    backward(loss);
    anchor(0.5, kind).take_apart(whole, rest, h, h.grad().clone(), 2.0, 2);
    const RadialSums of_loss = RadialSums::from(whole.data<double>(), 2);
    CHECK(of_loss.norm > 0.1);
    CHECK(RadialSums::from(rest.data<double>(), 2).norm < 1e-12);
    // Of the mean, times the tokens: 2 lambda (s - t) |h'|^2 / (C s |h|) for each row.
    if (kind == NormKind::rms) {
      CHECK(of_loss.outward == doctest::Approx(2 * 0.5 * (0.5 * 5 / 10 - 1.0 * 2 / 4)));
      CHECK(of_loss.magnitude == doctest::Approx(of_loss.norm));
    }
  }
}
