#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "engine/core/error.h"
#include "tests/support/faults.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "train/metrics.h"

using namespace taper;
using namespace taper::test;

TEST_CASE("metrics: a line has the documented keys, aux null before taper start, no NaN") {
  const TempDir run;
  {
    MetricsFile file(run.path(), 0);
    StepReport report;
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.bad_tensor = "wte.weight";
    file.write(report, 1234.6);
    file.write(1, 0.5, {});
  }
  const std::string text = read_file(run / "metrics.jsonl");
  const auto line = nlohmann::json::parse(text.substr(0, text.find('\n')));
  for (const char* key :
       {"step", "loss", "ce", "aux", "gate", "lr", "scale", "scale_max", "logit_rms", "grad_norm", "radial_ce",
        "radial_ce_share", "radial_loss", "radial_loss_share", "loss_z", "grad_norm_z", "tokens_per_s", "bad"}) {
    CAPTURE(key);
    CHECK(line.contains(key));
  }
  CHECK(line["aux"].is_null());
  CHECK(line["loss"].is_null());
  CHECK(line["tokens_per_s"] == 1235);
  const auto evaluation = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  CHECK(evaluation["valid_loss"] == 0);
  CHECK(evaluation["step"] == 1);
}

TEST_CASE("metrics: going on drops the lines of steps that will be done again, and half lines") {
  const TempDir run;
  run.write("metrics.jsonl",
            "{\"step\":0,\"loss\":1}\n{\"step\":1,\"loss\":1}\n{\"step\":2,\"valid_loss\":1}\n"
            "{\"step\":2,\"loss\":1}\n{\"step\":3,\"valid_loss\":1}\n{\"step\":3,\"lo");
  MetricsFile(run.path(), 2);
  CHECK(read_file(run / "metrics.jsonl") == "{\"step\":0,\"loss\":1}\n{\"step\":1,\"loss\":1}\n");
}

namespace {

// A loss that wanders, and at step 60 one far away; a gradient norm a hundred times as large.
StepReport wandering(int64_t step) {
  StepReport report;
  report.step = step;
  report.loss = step == 60 ? 9 : 2 + 0.1 * std::sin(1.7 * static_cast<double>(step));
  report.gradient_norm = 100 * report.loss;
  if (step == 30) report.bad_tensor = "wte.weight";
  return report;
}

}  // namespace

TEST_CASE("metrics: z-scores find the step that is unlike those before it") {
  const TempDir run;
  {
    MetricsFile file(run.path(), 0);
    for (int64_t step = 0; step < 80; ++step) file.write(wandering(step), 1);
  }
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  // By the definition, from all values: the weight of a value is 0.99 to the number of those after it.
  std::vector<double> before;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto step = json["step"].get<int64_t>();
    CAPTURE(step);
    if (step == 30 || before.size() < 10) {
      CHECK(json["loss_z"].is_null());
      CHECK(json["grad_norm_z"].is_null());
    } else {
      double weights = 0, sum = 0, squares = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        const double weight = std::pow(0.99, static_cast<double>(before.size() - 1 - i));
        weights += weight;
        sum += weight * before[i];
        squares += weight * before[i] * before[i];
      }
      const double mean = sum / weights, deviation = std::sqrt(squares / weights - mean * mean);
      CHECK(json["loss_z"].get<double>() == doctest::Approx((json["loss"].get<double>() - mean) / deviation));
      CHECK(json["grad_norm_z"].get<double>() == doctest::Approx(json["loss_z"].get<double>()));
      CHECK((std::abs(json["loss_z"].get<double>()) > 10) == (step == 60));
    }
    if (step != 30) before.push_back(json["loss"].get<double>());
  }
  CHECK(before.size() == 79);
}

TEST_CASE("metrics: going on, z-scores are those of a run that was never stopped") {
  const TempDir run, other;
  {
    MetricsFile whole(run.path(), 0), first(other.path(), 0);
    for (int64_t step = 0; step < 80; ++step) whole.write(wandering(step), 1);
    for (int64_t step = 0; step < 50; ++step) first.write(wandering(step), 1);
  }
  {
    MetricsFile second(other.path(), 45);
    for (int64_t step = 45; step < 80; ++step) second.write(wandering(step), 1);
  }
  CHECK(read_file(run / "metrics.jsonl") == read_file(other / "metrics.jsonl"));
}

TEST_CASE("metrics: a full disk is said, its lines wait and come when there is room") {
  if (!kFaultsStrike) SKIP_TEST("a sanitizer holds the calls that faults replace");
  const TempDir run;
  MetricsFile file(run.path(), 0);
  file.write(1, 0.5, {});
  CHECK(file.problem().empty());
  {
    const PlantedFault full({Call::write, ENOSPC, true}, 1);
    file.write(2, 0.5, {});
    CHECK(file.problem().find("No space left") != std::string::npos);
    file.write(3, 0.5, {});
    CHECK_THROWS_WITH_AS(file.require_written(), doctest::Contains("metrics.jsonl: cannot be written"), Error);
  }
  file.write(4, 0.5, {});
  CHECK(file.problem().empty());
  file.require_written();
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  int64_t step = 0;
  for (std::string line; std::getline(lines, line);) CHECK(nlohmann::json::parse(line)["step"] == ++step);
  CHECK(step == 4);
}

TEST_CASE("metrics: a file that cannot be read is an error, not an empty one") {
  if (!kFaultsStrike) SKIP_TEST("a sanitizer holds the calls that faults replace");
  const TempDir run;
  run.write("metrics.jsonl", "{\"step\":0}\n");
  {
    const PlantedFault unreadable({Call::read, EIO}, 1);
    CHECK_THROWS_AS(MetricsFile(run.path(), 2), Error);
  }
  CHECK(read_file(run / "metrics.jsonl") == "{\"step\":0}\n");
}
