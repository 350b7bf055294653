// The scale anchor and what is measured at the same place, the pre-logit residual stream h [..., C]:
//   s = sqrt(mean(h'^2) + eps),  h' = h (RMS) or h - mean(h) (LayerNorm)
//   anchor = lambda * mean over tokens of (s - target)^2
// Why there is an anchor: a final norm is 0-homogeneous, so <dCE/dh, h> = 0 (Euler). Without it, once a token is
// classified with a margin, growing |h| lowers the cross-entropy for ever.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/autograd/op.h"
#include "engine/ops/ops.h"
#include "model/config.h"

namespace taper {

// Sums over tokens; micro-batches add up.
struct ScaleSums {
  double s = 0;
  double greatest_s = 0;
  double squared_deviation = 0;  // of s from the target

  static ScaleSums from(const double* sums);  // of kernels::scale_loss_fwd
  void add(const ScaleSums& other);
};

// Sums over tokens of a gradient dh of the stream, per token (so with a mean as loss: times the number of tokens).
struct RadialSums {
  double outward = 0;    // <dh, h / |h|>
  double magnitude = 0;  // |<dh, h / |h|>|
  double norm = 0;       // |dh|

  static RadialSums from(const double* sums, int64_t tokens);  // of kernels::radial_sums, in a step of so many tokens
  void add(const RadialSums& other);
};

class AnchorLoss {
 public:
  AnchorLoss(const ModelConfig& config, double lambda) : kind_(config.norm), eps_(config.eps), lambda_(lambda) {}

  // On once there is a target, where lambda is not 0.
  bool is_active(std::optional<double> target) const { return target.has_value() && lambda_ != 0; }
  double lambda() const { return lambda_; }

  // Statistics alone, outside the graph, into sums f64 [3]. Without a target the deviation is from 0.
  void measure(const Tensor& sums, const Tensor& h, std::optional<double> target) const;

  // The term of these rows in the loss of a step of `tokens` tokens, f64 [1]; the statistics into sums f64 [3].
  Tensor loss(const Tensor& sums, const Tensor& h, double target, int64_t tokens) const;

  // Takes apart dh, the gradient of the whole loss at h, into the radial sums, f64 [3], of both of its parts: the
  // anchor's is known in closed form, so that of the cross-entropy is the rest. Overwrites dh with the gradient of the
  // cross-entropy where the anchor is active.
  void take_apart(const Tensor& of_loss, const Tensor& of_cross_entropy, const Tensor& h, const Tensor& dh,
                  std::optional<double> target, int64_t tokens) const;

 private:
  NormKind kind_;
  double eps_;
  double lambda_;
};

}  // namespace taper
