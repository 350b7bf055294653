#include "train/anchor_loss.h"

#include <algorithm>

namespace taper {
ScaleSums ScaleSums::from(const double* sums) { return {sums[0], sums[1], sums[2]}; }

RadialSums RadialSums::from(const double* sums, int64_t tokens) {
  const auto count = static_cast<double>(tokens);
  return {count * sums[0], count * sums[1], count * sums[2]};
}

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

void AnchorLoss::measure(const Tensor& sums, const Tensor& h, std::optional<double> target) const {
  const Tensor s = Tensor::empty({h.shape().rows()}, accumulation_dtype(h.dtype()), h.device(), "scales");
  kernels::scale_loss_fwd(sums, s, h, kind_, eps_, target.value_or(0.0));
}

Tensor AnchorLoss::loss(const Tensor& sums, const Tensor& h, double target, int64_t tokens) const {
  const ScaleLossResult result = scale_loss(h, kind_, eps_, target, lambda_ / static_cast<double>(tokens));
  sums.copy_from(result.sums);
  return result.loss;
}

void AnchorLoss::take_apart(const Tensor& of_loss, const Tensor& of_cross_entropy, const Tensor& h, const Tensor& dh,
                            std::optional<double> target, int64_t tokens) const {
  kernels::radial_sums(of_loss, h, dh);
  if (!is_active(target)) return of_cross_entropy.copy_from(of_loss);
  const Tensor sums = Tensor::empty({3}, Dtype::f64, h.device(), "scale sums");
  const Tensor s = Tensor::empty({h.shape().rows()}, accumulation_dtype(h.dtype()), h.device(), "scales");
  kernels::scale_loss_fwd(sums, s, h, kind_, eps_, *target);
  kernels::scale_loss_bwd(Accumulator(View(dh), true), h, s, View(), kind_, *target,
                          -lambda_ / static_cast<double>(tokens));
  kernels::radial_sums(of_cross_entropy, h, dh);
}

}  // namespace taper
