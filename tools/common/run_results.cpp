#include "tools/common/run_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "tools/common/messages.h"
#include "tools/common/run_settings.h"
#include "train/metrics.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kMaxJsonBytes = 1 << 20;
constexpr uint64_t kMaxMetricsBytes = uint64_t{4} << 30;

Json read_object(const fs::path& file) {
  if (!fs::exists(file)) return {};
  Json json = try_parse_json<Json>(read_file(file, kMaxJsonBytes));
  require(json.is_object(), "{}: is damaged; want a JSON object", file.string());
  return json;
}

}  // namespace

double Curve::mean(double begin, double end) const {
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < begin || steps[i] >= end) continue;
    sum += values[i];
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : kNone;
}

double Curve::greatest() const { return values.empty() ? kNone : *std::max_element(values.begin(), values.end()); }

double Curve::last() const { return values.empty() ? kNone : values.back(); }

RunResults::RunResults(const fs::path& folder)
    : folder_(folder), summary_(read_object(folder / kSummaryFile)), settings_(read_object(folder / kRunSettingsFile)) {
  const fs::path metrics = folder / kMetricsFile;
  std::istringstream file(read_file(metrics, kMaxMetricsBytes));
  int64_t number = 0, left_out = 0, first = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    Json json = try_parse_json<Json>(line);
    if (json.is_object() && json.contains("step") && json["step"].is_number() && json["step"] >= 0) {
      lines_.push_back(std::move(json));
    } else if (!file.eof()) {  // the last line of a run that was killed may be half a line
      if (++left_out == 1) first = number;
    }
  }
  if (left_out == 0) return;
  print_message(
      fmt::format("{}:{}: no line of metrics; left out, with {} more", metrics.string(), first, left_out - 1));
}

double RunResults::summary_number(const std::string& key) const {
  const bool is_there = summary_.is_object() && summary_.contains(key) && summary_[key].is_number();
  return is_there ? summary_[key].get<double>() : kNone;
}

Curve RunResults::curve(const std::string& key) const {
  Curve curve;
  for (const Json& line : lines_) {
    if (!line.contains(key) || !line[key].is_number() || (key == "gate" && !line.contains("loss"))) continue;
    curve.steps.push_back(line["step"].get<double>());
    curve.values.push_back(line[key].get<double>());
  }
  return curve;
}

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return kNone;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return kNone;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double median_of(std::vector<double> values) {
  if (values.empty()) return kNone;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace taper
