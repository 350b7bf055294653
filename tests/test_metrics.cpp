#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <limits>
#include <sstream>

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
  for (const char* key : {"step", "loss", "ce", "aux", "gate", "lr", "scale", "scale_max", "logit_rms", "grad_norm",
                          "radial_ce", "radial_ce_share", "radial_loss", "radial_loss_share", "tokens_per_s", "bad"}) {
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
