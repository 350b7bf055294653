#include <doctest/doctest.h>

#include "engine/core/error.h"
#include "train/fakeln_schedule.h"

using namespace taper;

namespace {

std::vector<int64_t> steps_of(const FakeLnSchedule& schedule, FakeLnPhase phase) {
  std::vector<int64_t> steps;
  for (const FakeLnEvent& event : schedule.events()) {
    if (event.phase == phase) steps.push_back(event.step);
  }
  return steps;
}

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("fakeln schedule: the published numbers for twelve blocks and 300 steps") {
  const FakeLnSchedule schedule(12, 300, default_fakeln_times(300));
  CHECK(steps_of(schedule, FakeLnPhase::norm2) == Steps{20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42});
  CHECK(steps_of(schedule, FakeLnPhase::norm1_qk) == Steps{44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64, 66});
  CHECK(steps_of(schedule, FakeLnPhase::norm1_v) == Steps{68, 71, 74, 77, 80, 83, 86, 89, 92, 95, 98, 101});
  CHECK(steps_of(schedule, FakeLnPhase::final_norm) == Steps{104});
  CHECK(steps_of(schedule, FakeLnPhase::first_position) == Steps{106});
  CHECK(steps_of(schedule, FakeLnPhase::end_of_text) == Steps{108});
  CHECK(schedule.events().size() == 3 * 12 + 3);
  CHECK(schedule.gate(19) == 1.0);
  CHECK(schedule.gate(20) == doctest::Approx(38.0 / 39));
  CHECK(schedule.gate(107) == doctest::Approx(1.0 / 39));
  CHECK(schedule.gate(108) == 0.0);
  CHECK(schedule.gate(299) == 0.0);
}

TEST_CASE("fakeln schedule: phases come in order, each after the last, however short the run") {
  for (const int64_t layers : {0, 1, 2, 4, 12}) {
    for (const int64_t steps : {10, 30, 45, 100, 299, 300, 1000}) {
      CAPTURE(layers);
      CAPTURE(steps);
      const FakeLnSchedule schedule(layers, steps, default_fakeln_times(steps));
      const std::vector<FakeLnEvent>& events = schedule.events();
      CHECK(events.front().step >= 1);
      CHECK(events.back().step < steps);
      CHECK(events.back().phase == FakeLnPhase::end_of_text);
      for (size_t i = 1; i < events.size(); ++i) {
        if (events[i].phase == events[i - 1].phase) {
          CHECK(events[i].step >= events[i - 1].step);
          CHECK(events[i].block == events[i - 1].block + 1);
        } else {
          CHECK(events[i].phase > events[i - 1].phase);
          CHECK(events[i].step > events[i - 1].step);
        }
      }
      for (int64_t step = 1; step < steps; ++step) CHECK(schedule.gate(step) <= schedule.gate(step - 1));
    }
  }
}

TEST_CASE("fakeln schedule: a shorter run is in proportion, a longer one begins as soon") {
  const FakeLnTimes third = default_fakeln_times(100);
  CHECK(third.start == doctest::Approx(20.0 / 3));
  CHECK(third.gap_v == doctest::Approx(1));
  CHECK(steps_of(FakeLnSchedule(3, 100, third), FakeLnPhase::norm2) == Steps{6, 7, 8});
  CHECK(default_fakeln_times(5000).start == 20);
}

TEST_CASE("fakeln schedule: what does not fit into the run is refused") {
  CHECK_THROWS_WITH_AS(FakeLnSchedule(48, 300, default_fakeln_times(300)),
                       doctest::Contains("got step 360 of 300, want more steps"), UsageError);
  CHECK_THROWS_AS(FakeLnSchedule(2, 6, default_fakeln_times(6)), UsageError);
  CHECK_NOTHROW(FakeLnSchedule(2, 7, default_fakeln_times(7)));
  CHECK_THROWS_AS(FakeLnSchedule(2, 100, FakeLnTimes{95, 1, 1, 1, 1}), UsageError);
}
