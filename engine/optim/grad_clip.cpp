#include "engine/optim/grad_clip.h"

#include <cmath>

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {

void sum_gradient_squares(const Tensor& squares, const std::vector<NamedGradient>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i);
    if (gradients[i].gradient) {
      kernels::sum_squares(squares.rows(row, row + 1), gradients[i].gradient);
    } else {
      kernels::fill(squares.rows(row, row + 1), 0.0);
    }
  }
}

GradientNorm gradient_norm(const std::vector<NamedGradient>& gradients, double max_norm) {
  Device device = Device::cpu;
  for (const NamedGradient& g : gradients) {
    if (g.gradient) device = g.gradient.device();
  }
  // One transfer for all of them where the gradients are on another device.
  const Tensor squares = Tensor::empty({static_cast<int64_t>(gradients.size())}, Dtype::f64, device, "squared norms");
  sum_gradient_squares(squares, gradients);
  return norm_of_squares(squares.to_doubles().data(), gradients, max_norm);
}

GradientNorm norm_of_squares(const double* squares, const std::vector<NamedGradient>& gradients, double max_norm) {
  require_usage(max_norm > 0, "gradient clipping: the greatest norm is out of range; got {}, want more than 0",
                max_norm);
  GradientNorm result;
  double sum = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    sum += squares[i];
    if (std::isfinite(squares[i]) || !result.is_finite) continue;
    result.is_finite = false;
    result.first_bad = gradients[i].name;
  }
  result.norm = std::sqrt(sum);
  if (!result.is_finite) {
    result.clip_factor = 0;
  } else if (result.norm > max_norm) {
    result.clip_factor = max_norm / result.norm;
  }
  return result;
}

}  // namespace taper
