#include "train/anchor_loss.h"

#include <algorithm>

namespace taper {
namespace {

ScaleSums to_sums(const Tensor& sums) {
  const std::vector<double> values = sums.to_doubles();
  return {values[0], values[1], values[2]};
}

RadialSums measure_radial(const Tensor& h, const Tensor& dh, double tokens) {
  const Tensor sums = Tensor::empty({3}, Dtype::f64, h.device(), "radial sums");
  kernels::radial_sums(sums, h, dh);
  const std::vector<double> values = sums.to_doubles();
  return {tokens * values[0], tokens * values[1], tokens * values[2]};
}

}  // namespace

void ScaleSums::add(const ScaleSums& other) {
  s += other.s;
  greatest_s = std::max(greatest_s, other.greatest_s);
  squared_deviation += other.squared_deviation;
}

void RadialSums::add(const RadialSums& other) {
  outward += other.outward;
  magnitude += other.magnitude;
  norm += other.norm;
}

ScaleSums AnchorLoss::measure(const Tensor& h, std::optional<double> target) const {
  const Tensor sums = Tensor::empty({3}, Dtype::f64, h.device(), "scale sums");
  const Tensor s = Tensor::empty({h.shape().rows()}, accumulation_dtype(h.dtype()), h.device(), "scales");
  kernels::scale_loss_fwd(sums, s, h, kind_, eps_, target.value_or(0.0));
  return to_sums(sums);
}

Tensor AnchorLoss::loss(const Tensor& h, double target, int64_t tokens, ScaleSums& sums) const {
  const ScaleLossResult result = scale_loss(h, kind_, eps_, target, lambda_ / static_cast<double>(tokens));
  sums = to_sums(result.sums);
  return result.loss;
}

AnchorLoss::Parts AnchorLoss::take_apart(const Tensor& h, const Tensor& dh, std::optional<double> target,
                                         int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  Parts parts;
  parts.of_loss = measure_radial(h, dh, count);
  if (!is_active(target)) {
    parts.of_cross_entropy = parts.of_loss;
    return parts;
  }
  const Tensor sums = Tensor::empty({3}, Dtype::f64, h.device(), "scale sums");
  const Tensor s = Tensor::empty({h.shape().rows()}, accumulation_dtype(h.dtype()), h.device(), "scales");
  kernels::scale_loss_fwd(sums, s, h, kind_, eps_, *target);
  kernels::scale_loss_bwd(Accumulator(View(dh), true), h, s, kind_, *target, -lambda_ / count);
  parts.of_cross_entropy = measure_radial(h, dh, count);
  return parts;
}

}  // namespace taper
