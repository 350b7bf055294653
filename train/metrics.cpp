#include "train/metrics.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 34;
// Lines that wait for room on the disk.
constexpr size_t kMostWaiting = size_t{1} << 26;

// JSON has no NaN and no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

bool belongs_to(const Json& line, int64_t steps) {
  return line.is_object() && line.contains("step") && line["step"].is_number_integer() &&
         line["step"].get<int64_t>() < steps;
}

double number_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

}  // namespace

// A file that cannot be read is an error, not an empty one: what it holds would be lost.
std::string MetricsFile::kept_lines(int64_t steps) {
  if (!std::filesystem::exists(path_)) return "";
  const std::string text = read_file(path_, kMaxBytes);
  std::string kept;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const Json json = try_parse_json<Json>(line);
    if (!belongs_to(json, steps)) continue;
    kept += line + "\n";
    if (json.contains("bad")) continue;
    loss_.observe(number_in(json, "loss"));
    gradient_norm_.observe(number_in(json, "grad_norm"));
  }
  return kept;
}

MetricsFile::MetricsFile(const std::filesystem::path& run, int64_t steps) : path_(run / kMetricsFile) {
  write_file(path_, kept_lines(steps));
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  require(descriptor_ >= 0, "{}: cannot be opened: {}", path_.string(), std::strerror(errno));
}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

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
  const bool is_good = report.bad_tensor.empty();
  const auto score = [](const std::optional<double>& z) { return z ? number(*z) : Json(); };
  line["loss_z"] = is_good ? score(loss_.observe(report.loss)) : Json();
  line["grad_norm_z"] = is_good ? score(gradient_norm_.observe(report.gradient_norm)) : Json();
  line["tokens_per_s"] = number(std::round(tokens_per_s));
  if (!is_good) line["bad"] = report.bad_tensor;
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
  waiting_ += line + "\n";
  problem_.clear();
  while (!waiting_.empty()) {
    const ssize_t count = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      problem_ = count < 0 ? std::strerror(errno) : "the system took no bytes";
      break;
    }
    // Where only a part was taken the rest of its line comes next, so the file stays whole.
    waiting_.erase(0, static_cast<size_t>(count));
  }
  if (waiting_.size() > kMostWaiting) require_written();
}

void MetricsFile::require_written() const {
  require(waiting_.empty(), "{}: cannot be written: {} bytes more: {}", path_.string(), waiting_.size(), problem_);
}

}  // namespace taper
