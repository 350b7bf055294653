// Gradients against central differences, in f64: for outputs y_i and random cotangents w_i, the derivative of
// sum <y_i, w_i> by an entry x is compared with (value at x + step - value at x - step) / (2 step). Random cotangents,
// never a plain sum: the sum of a softmax or a norm over its row is constant, and a sum would not see a wrong gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace taper {

struct GradCheck {
  std::string what;                                 // names the function in messages: "taper_norm, gate 0.37"
  std::function<Tensors(const Tensors&)> function;  // f64 inputs -> f64 outputs, recorded on the tape
  Tensors inputs;                                   // undefined ones are handed on
  std::vector<bool> is_differentiated;              // by input
  std::vector<int> outputs_without_grad{};          // left out of the sum
  uint64_t seed = 1;                                // of cotangents, of the entries tried and of the direction
  int64_t most_entries = 40;                        // tried in each input; a random direction covers all the others
  double step = 1e-5;
  double tolerance = 1e-6;  // |numeric - analytic| <= tolerance * max(1, greatest |analytic| of the input)
};

// Empty where all agree, else one line for each disagreement: function, input, entry, numeric and analytic derivative.
std::string check_gradients(const GradCheck& check);

// Standard normals by position, the same for the same seed.
Tensor random_normal(const Shape& shape, Dtype dtype, uint64_t seed);

}  // namespace taper
