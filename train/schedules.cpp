#include "train/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/core/error.h"

namespace taper {
namespace {

// From 1 to 0 over [0, length).
double cosine_fall(int64_t position, int64_t length) {
  return 0.5 * (1 + std::cos(std::numbers::pi * static_cast<double>(position) / static_cast<double>(length)));
}

int64_t part_of(int64_t steps, double fraction) {
  constexpr double kMost = 1e18;  // fits 64 bits, and no run comes that far
  // 0.29 * 100 is 28.999999999999996 in binary, and 29 is meant.
  return static_cast<int64_t>(std::min(kMost, std::floor(fraction * static_cast<double>(steps) + 1e-9)));
}

}  // namespace

double Schedule::learning_rate(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (warmup >= steps) return peak;
  const double least = floor * peak;
  return step >= steps ? least : least + (peak - least) * cosine_fall(step - warmup, steps - warmup);
}

Gate Schedule::gate(int64_t step) const {
  if (!tapers || step < taper_start) return {1.0};
  if (step >= taper_end) return {0.0};
  return {cosine_fall(step - taper_start, taper_end - taper_start)};
}

Schedule make_schedule(int64_t steps, double peak, const ScheduleFractions& fractions, bool tapers,
                       bool allows_unfinished_taper) {
  require_usage(steps >= 1, "steps: too few; got {}, want at least 1", steps);
  Schedule schedule;
  schedule.steps = steps;
  schedule.peak = peak;
  schedule.tapers = tapers;
  schedule.warmup = std::max<int64_t>(1, part_of(steps, fractions.warmup));
  schedule.taper_start = fractions.taper_start ? part_of(steps, *fractions.taper_start) : schedule.warmup;
  schedule.taper_end = part_of(steps, fractions.taper_end);
  if (!tapers) return schedule;
  require_usage(schedule.taper_end > schedule.taper_start,
                "taper-end: must come after taper-start; got step {} and step {} of {}", schedule.taper_end,
                schedule.taper_start, steps);
  require_usage(steps > schedule.taper_end || allows_unfinished_taper,
                "taper-end: the run would end before the gate is 0; got step {} of {} steps, want an earlier one, or "
                "--allow-unfinished-taper",
                schedule.taper_end, steps);
  return schedule;
}

}  // namespace taper
