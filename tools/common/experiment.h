// What the programs of the paper's experiments share. Each of them says which runs it is made of and what tables come
// of them; everything else is here: its size by the time there is, the plan (tools/common/plan.h) and its execution,
// the record of how far the setting is from the published one, and the tables' files.
//
//   OUTPUT/experiment.json  what was asked for, the scale chosen, and the scale beside the published one
//   OUTPUT/plan.jsonl       the runs, as run-plan reads them
//   OUTPUT/RUN/             each of them
//   OUTPUT/table.json       all tables; table.md and one NAME.csv each, from the same numbers
//
// Called again with the same options it goes on where it was stopped; finished runs stay.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/common/cli.h"
#include "tools/common/plan.h"
#include "tools/common/result_table.h"
#include "tools/common/run_results.h"

namespace taper {

// How large an experiment is.
struct Scale {
  std::vector<std::string> sizes;  // of models
  int64_t seeds = 2;
  int64_t steps = 0;
  int64_t batch_tokens = 4096;
  int64_t context = 256;
  double peak = 3e-3;    // of the learning rate
  double warmup = 0.05;  // parts of the steps
  double taper_start = 0.05;
  double taper_end = 0.4;
};

// The published setting on TinyStories (arXiv 2602.10408): sizes, seeds, context and learning rate are the paper's; the
// paper's public replication gave the length, 2.1e9 tokens of 16,384 a step, and the schedule.
Scale published_scale();
inline constexpr const char* kPublishedSource =
    "Models, seeds, vocabulary, context and learning rate are the paper's (arXiv 2602.10408); length, batch and "
    "schedule "
    "are those of its public replication.";

struct ExperimentOptions {
  std::string data;  // one folder, or as Experiment::has_corpora says
  std::filesystem::path output;
  double budget = 0;  // minutes; 0: not by time
  bool is_full = false;
  bool overwrites = false;
  int processes = 0;  // 0: measured
  // 0 or empty: the scale's.
  std::string sizes;  // with commas between them
  int64_t seeds = 0, steps = 0, batch_tokens = 0, context = 0, width = 0, layers = 0, heads = 0;
  double peak = 0, warmup = -1, taper_start = -1, taper_end = 0;

  void declare(Cli& cli);
};

using ResultsByName = std::map<std::string, RunResults>;  // of the runs that have finished

struct Experiment {
  std::string name;
  std::string question;  // in a sentence
  Scale full;
  std::string source_of_full = kPublishedSource;
  bool has_corpora = false;  // several folders of data, with commas between them
  // Small to large: the first where steps are given; a budget chooses among scales_for_budget() of them.
  std::vector<Scale> scaled;
  std::function<std::vector<PlannedRun>(const Scale& scale)> plan;
  std::function<std::vector<ResultTable>(const Scale& scale, const ResultsByName& results)> tables;
};

inline constexpr int64_t kMostSeeds = 1000;

// Options of a run of pretrain, from those of the experiment.
nlohmann::ordered_json pretrain_options(const ExperimentOptions& options, const CommonOptions& common,
                                        const Scale& scale, const std::string& size, const std::string& variant,
                                        double anchor, int64_t seed);

// The whole program after cli.parse(). Returns the exit code; UsageError where neither time nor steps are given, or the
// folder holds the experiment with other options; Error, after the tables of the others, where runs failed.
int run_experiment(const Experiment& experiment, const ExperimentOptions& options, const Cli& cli,
                   const CommonOptions& common);

// Values with commas between them, as options have them: "1M,3M", "0.03,0.1". UsageError, naming the option, for what
// is no size, or no number above or equal to `least`.
std::vector<std::string> split_at_commas(const std::string& text);
std::vector<std::string> parse_sizes(const std::string& option, const std::string& text);
std::vector<double> parse_numbers(const std::string& option, const std::string& text, double least);

// For names of runs: "0.1", "0.003".
std::string short_number(double value);

}  // namespace taper
