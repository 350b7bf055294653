#include <doctest/doctest.h>

#include <cmath>

#include "engine/core/error.h"
#include "train/schedules.h"

using namespace taper;

namespace {

Schedule schedule(int64_t steps, int64_t warmup, int64_t start, int64_t end) {
  Schedule s;
  s.steps = steps;
  s.warmup = warmup;
  s.taper_start = start;
  s.taper_end = end;
  s.tapers = true;
  return s;
}

}  // namespace

TEST_CASE("schedules: the learning rate rises to the peak and falls to a tenth by a cosine") {
  const Schedule s = schedule(100, 10, 10, 60);
  CHECK(s.learning_rate(0) == doctest::Approx(6e-5));
  CHECK(s.learning_rate(9) == 6e-4);
  CHECK(s.learning_rate(10) == doctest::Approx(6e-4));
  CHECK(s.learning_rate(55) == doctest::Approx(3.3e-4));
  CHECK(s.learning_rate(99) == doctest::Approx(6.0164e-5).epsilon(1e-5));
  CHECK(s.learning_rate(100) == doctest::Approx(6e-5).epsilon(1e-15));
  CHECK(s.learning_rate(1000) == s.learning_rate(100));
  for (int64_t k = 11; k <= 100; ++k) CHECK(s.learning_rate(k) < s.learning_rate(k - 1));
}

TEST_CASE("schedules: no warm-up, and nothing but warm-up") {
  const Schedule none = schedule(10, 0, 1, 5);
  CHECK(none.learning_rate(0) == doctest::Approx(6e-4));
  const Schedule whole = schedule(10, 10, 1, 5);
  CHECK(whole.learning_rate(9) == 6e-4);
  CHECK(whole.learning_rate(10) == 6e-4);
  CHECK(whole.learning_rate(100) == 6e-4);
  const Schedule longer = schedule(10, 20, 1, 5);
  CHECK(longer.learning_rate(9) == doctest::Approx(3e-4));
}

TEST_CASE("schedules: the gate is 1, falls by a cosine, and is exactly 0") {
  const Schedule s = schedule(100, 10, 20, 60);
  CHECK(s.gate(0).value == 1.0);
  CHECK(s.gate(19).value == 1.0);
  CHECK(s.gate(20).value == 1.0);
  CHECK(s.gate(40).value == doctest::Approx(0.5));
  CHECK(s.gate(59).value > 0);
  CHECK(s.gate(60).value == 0.0);
  CHECK(s.gate(1000).value == 0.0);
  for (int64_t k = 21; k <= 60; ++k) CHECK(s.gate(k).value < s.gate(k - 1).value);
  Schedule baseline = s;
  baseline.tapers = false;
  CHECK(baseline.gate(99).value == 1.0);
}

TEST_CASE("schedules: fractions are rounded down, the warm-up to at least one step") {
  const Schedule s = make_schedule(500, 3e-3, {}, true);
  CHECK(s.warmup == 50);
  CHECK(s.taper_start == 50);
  CHECK(s.taper_end == 300);
  const Schedule few = make_schedule(7, 3e-3, {}, true);
  CHECK(few.warmup == 1);
  CHECK(few.taper_start == 1);
  CHECK(few.taper_end == 4);
  CHECK(make_schedule(100, 1, {0.29, 0.0, 0.6}, true).warmup == 29);
  CHECK(make_schedule(100, 1, {0.29, 0.0, 0.6}, true).taper_start == 0);
}

TEST_CASE("schedules: a taper must start before it ends and end before the run does") {
  CHECK_THROWS_AS(make_schedule(100, 1, {0.1, 0.6, 0.6}, true), UsageError);
  CHECK_THROWS_AS(make_schedule(1, 1, {}, true), UsageError);
  CHECK_THROWS_WITH_AS(make_schedule(100, 1, {0.1, 0.1, 1.0}, true), doctest::Contains("--allow-unfinished-taper"),
                       UsageError);
  CHECK(make_schedule(100, 1, {0.1, 0.1, 1.0}, true, true).taper_end == 100);
  CHECK(make_schedule(100, 1, {0.1, 0.1, 0.99}, true).taper_end == 99);
  CHECK(make_schedule(1, 1, {}, false).gate(0).value == 1.0);
  CHECK(make_schedule(100, 1, {0.1, 0.1, 1e300}, true, true).gate(99).value > 0.999);
}
