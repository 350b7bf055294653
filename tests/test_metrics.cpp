#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <limits>

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
