// A plan: a file of training runs, JSON lines, one run a line:
//   {"name": "all-seed0", "program": "pretrain", "options": {"data": "tokens", "size": "1M", "steps": 500, "seed": 0}}
//   name     letters, digits, '.', '_', '-': the run's folder within the plan's
//   program  pretrain or finetune
//   options  the program's options without dashes: text, numbers, true for a flag; but for those a plan sets itself
//            (output, resume, overwrite, json, quiet, config, live, profile)
//   after    optional: the name of an earlier run, which must have finished before this one begins
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace taper {

struct PlannedRun {
  std::string name;
  std::string program;
  nlohmann::ordered_json options;
  std::string after;
};

// UsageError with source and line for anything else than the above, and for an empty plan.
std::vector<PlannedRun> parse_plan(const std::string& text, const std::string& source);
std::vector<PlannedRun> read_plan(const std::filesystem::path& file);
std::string plan_text(const std::vector<PlannedRun>& runs);

// An option as the run's command line has it; none where it is not given.
std::optional<std::string> option_text(const PlannedRun& run, const std::string& key);
// One that counts something, a number or a text. UsageError, naming run and option, for what is no whole number above
// 0.
std::optional<int64_t> option_count(const PlannedRun& run, const std::string& key);

// A run's options as a command line.
std::vector<std::string> arguments_of(const nlohmann::ordered_json& options);

}  // namespace taper
