// What a finished run wrote down (train/metrics.h), for tables and plots.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace taper {

// One key of metrics.jsonl by step.
struct Curve {
  std::vector<double> steps;
  std::vector<double> values;

  bool is_empty() const { return steps.empty(); }
  // Mean over begin <= step < end; NaN where there is nothing.
  double mean(double begin, double end) const;
  // NaN where there is nothing.
  double greatest() const;
  double last() const;
};

class RunResults {
 public:
  // Error where summary.json or metrics.jsonl is absent or damaged; a run that goes on has no summary yet: is_finished.
  explicit RunResults(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  bool is_finished() const { return summary_.is_object(); }
  const nlohmann::ordered_json& summary() const { return summary_; }
  const nlohmann::ordered_json& settings() const { return settings_; }  // config.json
  double summary_number(const std::string& key) const;                  // NaN where there is none
  // Lines where the value is a number. Step lines and evaluation lines have different keys, but for step and gate: the
  // gate's are those of the steps.
  Curve curve(const std::string& key) const;

 private:
  std::filesystem::path folder_;
  nlohmann::ordered_json summary_, settings_;
  std::vector<nlohmann::ordered_json> lines_;
};

double mean_of(const std::vector<double>& values);       // NaN of none
double deviation_of(const std::vector<double>& values);  // of a sample, n - 1; NaN of fewer than two
double median_of(std::vector<double> values);            // NaN of none

}  // namespace taper
