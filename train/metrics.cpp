#include "train/metrics.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

bool belongs_to(const Json& line, int64_t steps) {
  return line.is_object() && line.contains("step") && line["step"].is_number_integer() &&
         line["step"].get<int64_t>() < steps;
}

std::string kept_lines(const std::filesystem::path& path, int64_t steps) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    if (belongs_to(Json::parse(line, nullptr, false), steps)) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& run, int64_t steps) : path_(run / "metrics.jsonl") {
  write_file(path_, kept_lines(path_, steps));
  file_.open(path_, std::ios::app);
  require(file_.good(), "{}: cannot be opened: {}", path_.string(), std::strerror(errno));
}

void MetricsFile::write(const StepReport& report, double tokens_per_s) {
  Json line;
  line["step"] = report.step;
  line["loss"] = number(report.loss);
  line["ce"] = number(report.ce);
  line["aux"] = report.aux ? number(*report.aux) : Json();
  line["gate"] = report.gate;
  line["lr"] = report.learning_rate;
  line["scale"] = number(report.scale);
  line["scale_max"] = number(report.greatest_scale);
  line["logit_rms"] = number(report.logit_rms);
  line["grad_norm"] = number(report.gradient_norm);
  line["radial_ce"] = number(report.radial_of_ce.outward);
  line["radial_ce_share"] = number(report.radial_of_ce.share);
  line["radial_loss"] = number(report.radial_of_loss.outward);
  line["radial_loss_share"] = number(report.radial_of_loss.share);
  if (report.identity) {
    line["radial_expected"] = number(report.identity->expected);
    line["radial_error"] = number(report.identity->error);
  }
  line["tokens_per_s"] = number(std::round(tokens_per_s));
  if (!report.bad_tensor.empty()) line["bad"] = report.bad_tensor;
  write_line(line.dump());
}

void MetricsFile::write(int64_t step, double gate, const Evaluation& evaluation) {
  Json line;
  line["step"] = step;
  line["valid_loss"] = number(evaluation.loss);
  line["perplexity"] = number(evaluation.perplexity);
  line["bits_per_byte"] = number(evaluation.bits_per_byte);
  line["tokens"] = evaluation.tokens;
  line["gate"] = gate;
  write_line(line.dump());
}

void MetricsFile::write_line(const std::string& line) {
  file_ << line << '\n' << std::flush;
  require(file_.good(), "{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

}  // namespace taper
