// The global norm of the gradients, and the factor that brings it down to a limit.
#pragma once

#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace taper {

struct NamedGradient {
  std::string name;
  Tensor gradient;  // undefined counts as zero
};

struct GradientNorm {
  double norm = 0;         // sqrt of the sum of all squares, added up in f64
  double clip_factor = 1;  // min(1, max_norm / norm); 0 where the norm is not finite
  bool is_finite = true;   // false: no update may be made
  std::string first_bad;   // the first tensor with a NaN or an infinity
};

// The sum of each gradient's squares into squares, f64, one for each: 0 where there is none.
void sum_gradient_squares(const Tensor& squares, const std::vector<NamedGradient>& gradients);
// The norm of gradients with these squares.
GradientNorm norm_of_squares(const double* squares, const std::vector<NamedGradient>& gradients, double max_norm);

// Both. max_norm > 0; infinity turns clipping off. Reads the gradients only: the factor is applied by the optimizer's
// pass.
GradientNorm gradient_norm(const std::vector<NamedGradient>& gradients, double max_norm);

}  // namespace taper
