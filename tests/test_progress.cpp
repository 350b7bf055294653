#include <doctest/doctest.h>

#include "train/progress.h"

using namespace taper;

TEST_CASE("progress: durations as people read them") {
  CHECK(format_duration(0.4) == "0s");
  CHECK(format_duration(59.4) == "59s");
  CHECK(format_duration(60) == "1m00s");
  CHECK(format_duration(3599) == "59m59s");
  CHECK(format_duration(7500) == "2h05m");
  CHECK(format_duration(-3) == "0s");
}

TEST_CASE("progress: the time left counts steps and evaluations to come") {
  Progress progress(100, 25, true);
  StepReport report;
  progress.step_done(report, 2.0, 512);
  progress.evaluation_done(7.0);
  // Evaluations after 25, 50 and 75 steps, and the last one.
  CHECK(progress.seconds_left(1) == doctest::Approx(99 * 2.0 + 4 * 7.0));
  CHECK(progress.seconds_left(50) == doctest::Approx(50 * 2.0 + 3 * 7.0));
  CHECK(progress.seconds_left(100) == doctest::Approx(7.0));
}
