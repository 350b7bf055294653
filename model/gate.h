// The gate g of a tapered model: one value in [0, 1] for the whole network, a function of the step. train/schedules
// decides it; the model takes it as an argument, like the tokens.
#pragma once

#include "engine/core/view.h"

namespace taper {

struct Gate {
  double value = 1.0;
  ConstView live = {};  // NormOptions::live_gate

  bool is_norm() const { return value >= 1.0; }    // the usual norm; the linear branch is not evaluated
  bool is_linear() const { return value <= 0.0; }  // no statistic of a token is computed
};

}  // namespace taper
