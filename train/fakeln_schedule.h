// When FakeLN fixes which norm (Baroni et al., "Transformers Don't Need LayerNorm at Inference Time", arXiv
// 2507.02559): not by one gate for all, but one after another, each in a single step. The phases, in this order and
// each beginning after the last:
//   norm2 of every block; norm1 on the way to q and k; norm1 on the way to v; the final norm; the average that position
//   0 has of its own; that of the end-of-text token.
#pragma once

#include <cstdint>
#include <vector>

namespace taper {

// In steps. The defaults are for runs of kFakeLnSteps or more.
struct FakeLnTimes {
  double start = 20;     // the first replacement
  double gap_norm2 = 2;  // from one block to the next
  double gap_qk = 2;
  double gap_v = 3;
  double gap_last = 2;  // from the final norm to the average of position 0, and on to that of end-of-text
};
inline constexpr int64_t kFakeLnSteps = 300;

// The defaults, in proportion where the run is shorter than kFakeLnSteps.
FakeLnTimes default_fakeln_times(int64_t steps);

enum class FakeLnPhase : uint8_t { norm2, norm1_qk, norm1_v, final_norm, first_position, end_of_text };

struct FakeLnEvent {
  int64_t step = 0;  // before which it happens
  FakeLnPhase phase{};
  int64_t block = 0;  // of the first three phases
};

class FakeLnSchedule {
 public:
  // UsageError where the last replacement would come after the last step.
  FakeLnSchedule(int64_t layers, int64_t steps, const FakeLnTimes& times);

  const std::vector<FakeLnEvent>& events() const { return events_; }  // in the order of time
  // The part of the replacements still to come after those of this step: 1 before the first, exactly 0 from the last.
  double gate(int64_t step) const;

 private:
  std::vector<FakeLnEvent> events_;
};

}  // namespace taper
