// The learning rate and the gate as functions of the step k = 0 .. K-1. Letters: K steps, W warm-up, T0 taper start,
// Z taper end.
//   learning rate   k < W: peak (k + 1) / W;   W <= k < K: min + (peak - min) (1 + cos(pi (k - W) / (K - W))) / 2;
//                   k >= K: min (peak where W >= K);   min = floor * peak
//   gate            k < T0: 1;   T0 <= k < Z: (1 + cos(pi (k - T0) / (Z - T0))) / 2;   k >= Z: exactly 0
#pragma once

#include <cstdint>
#include <optional>

#include "model/gate.h"

namespace taper {

// All that a training step takes from the schedule.
struct StepScalars {
  int64_t step = 0;
  double learning_rate = 0;
  Gate gate;
};

struct Schedule {
  int64_t steps = 1;        // K
  int64_t warmup = 1;       // W; 0: none
  int64_t taper_start = 1;  // T0: the running means end here, and c and the anchor's target are fixed
  int64_t taper_end = 1;    // Z
  double peak = 6e-4;
  double floor = 0.1;   // min / peak
  bool tapers = false;  // false: g = 1 for ever (baseline)

  double learning_rate(int64_t step) const;
  Gate gate(int64_t step) const;
  StepScalars at(int64_t step) const { return {step, learning_rate(step), gate(step)}; }
};

// W, T0 and Z as parts of the whole run.
struct ScheduleFractions {
  double warmup = 0.1;
  std::optional<double> taper_start;  // absent: T0 = W
  double taper_end = 0.6;
};

// Fractions of the steps, rounded down; W >= 1. UsageError where a tapering run has Z <= T0, or K <= Z unless
// `allows_unfinished_taper`: such a model would end half-tapered.
Schedule make_schedule(int64_t steps, double peak, const ScheduleFractions& fractions, bool tapers,
                       bool allows_unfinished_taper = false);

}  // namespace taper
