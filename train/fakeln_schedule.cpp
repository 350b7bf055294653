#include "train/fakeln_schedule.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace taper {

FakeLnTimes default_fakeln_times(int64_t steps) {
  const double part = std::min(1.0, static_cast<double>(steps) / static_cast<double>(kFakeLnSteps));
  const FakeLnTimes whole;
  return {part * whole.start, part * whole.gap_norm2, part * whole.gap_qk, part * whole.gap_v, part * whole.gap_last};
}

FakeLnSchedule::FakeLnSchedule(int64_t layers, int64_t steps, const FakeLnTimes& times) {
  double time = times.start;
  // The averages need one step at least.
  int64_t earliest = 1;
  const auto add_phase = [&](FakeLnPhase phase, int64_t count, double gap) {
    for (int64_t block = 0; block < count; ++block) {
      const auto step = std::max(earliest, static_cast<int64_t>(std::floor(time + 1e-9)));
      events_.push_back({step, phase, block});
      earliest = step;
      time += gap;
    }
    ++earliest;
  };
  add_phase(FakeLnPhase::norm2, layers, times.gap_norm2);
  add_phase(FakeLnPhase::norm1_qk, layers, times.gap_qk);
  add_phase(FakeLnPhase::norm1_v, layers, times.gap_v);
  add_phase(FakeLnPhase::final_norm, 1, times.gap_last);
  add_phase(FakeLnPhase::first_position, 1, times.gap_last);
  add_phase(FakeLnPhase::end_of_text, 1, 0);
  require_usage(events_.back().step < steps,
                "fakeln: the last replacement would come after the run; got step {} of {}, want more steps, an earlier "
                "start or smaller gaps",
                events_.back().step, steps);
}

double FakeLnSchedule::gate(int64_t step) const {
  const auto is_to_come = [step](const FakeLnEvent& event) { return event.step > step; };
  const auto left = std::count_if(events_.begin(), events_.end(), is_to_come);
  return static_cast<double>(left) / static_cast<double>(events_.size());
}

}  // namespace taper
