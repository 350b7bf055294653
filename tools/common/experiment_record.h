// The files of an experiment's folder (tools/common/experiment.h), written and read.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "tools/common/experiment.h"
#include "tools/common/result_table.h"

namespace taper {

inline constexpr const char* kExperimentFile = "experiment.json";
inline constexpr const char* kPlanFile = "plan.jsonl";
inline constexpr const char* kTableFile = "table.json";
inline constexpr const char* kMarkdownFile = "table.md";

struct ExperimentRecord {
  std::string name;
  std::string question;
  nlohmann::ordered_json settings;  // the command line
  Scale scale;
  ResultTable scale_table;
};

void write_record(const std::filesystem::path& output, const ExperimentRecord& record);

// The scale of the experiment in the folder. UsageError where that is another experiment, or one that names the first
// setting in which `settings` differ from those it was begun with; Error where the file is damaged.
Scale recorded_scale(const std::filesystem::path& output, const std::string& name,
                     const nlohmann::ordered_json& settings);
ResultTable recorded_scale_table(const std::filesystem::path& output);

// What was scaled, and how far it is from the published setting.
ResultTable scale_table(const Scale& here, const Scale& full, int64_t vocabulary, const std::string& precision);

// table.json, table.md and the CSV files; returns the first.
nlohmann::ordered_json write_tables(const std::filesystem::path& output, const std::string& name,
                                    const std::string& question, const std::vector<ResultTable>& tables);

}  // namespace taper
