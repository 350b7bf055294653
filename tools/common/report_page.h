// The parts of a report (tools/report): each adds to the page, to the Markdown and to the CSV, from the same numbers.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/common/plot.h"
#include "tools/common/result_table.h"

namespace taper {

// What a report is made of, sorted by what it is.
struct ReportInputs {
  std::vector<std::filesystem::path> experiments;  // folders with experiment.json
  std::vector<std::filesystem::path> runs;         // folders with metrics.jsonl
  std::vector<std::filesystem::path> benchmarks;   // JSON files of decode-bench and last-token-bench

  // UsageError where a path is none of these.
  void add(const std::filesystem::path& given);
};

class ReportPage {
 public:
  // keeps_pictures: each plot is drawn a second time, to stand alone.
  explicit ReportPage(bool keeps_pictures) : keeps_pictures_(keeps_pictures) {}

  void add_experiment(const std::filesystem::path& folder);
  void add_runs(const std::vector<std::filesystem::path>& folders);
  void add_benchmarks(const std::vector<std::filesystem::path>& files);
  void add_machine();

  std::string html() const;
  std::string markdown() const { return markdown_; }
  std::string csv() const { return "file,table,row,column,value\n" + csv_; }
  // SVG by name: SECTION-KEY, with a number behind it for a section's second group of runs and those after it.
  const std::map<std::string, std::string>& pictures() const { return pictures_; }

 private:
  // Sections of one name are numbered.
  void begin_section(const std::string& name, const std::string& title, const std::string& from);
  // `place`: FILE#POINTER of the table.
  void add_table(const ResultTable& table, const std::string& place);
  void add_published(const ResultTable& table);
  void add_to_csv(const ResultTable& table, const std::string& file);
  void add_plots(const std::vector<std::filesystem::path>& runs, bool has_scale_dynamics);
  template <class Plot>
  void keep_picture(const Plot& plot, const std::string& key) {
    if (keeps_pictures_) pictures_.emplace(section_ + "-" + key, draw_alone(plot));
  }
  void add_samples(const std::vector<std::filesystem::path>& runs);
  void add_settings(const std::filesystem::path& file, const std::string& pointer);

  const bool keeps_pictures_;
  std::set<std::string> sections_;
  std::string section_, contents_, body_, markdown_, csv_;
  std::map<std::string, std::string> pictures_;
};

}  // namespace taper
