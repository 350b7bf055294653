#include "tools/common/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "data/prepared_data.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/io/atomic_file.h"
#include "engine/io/folder_lock.h"
#include "engine/io/read_file.h"
#include "model/config.h"
#include "model/model_folder.h"
#include "tools/common/core_use.h"
#include "tools/common/experiment_record.h"
#include "tools/common/experiment_scale.h"
#include "tools/common/run_flags.h"
#include "tools/common/run_plan.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"
#include "train/schedules.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kMostMinutes = 1e6;
constexpr size_t kMostNumbers = 20;  // of a list

int64_t count_of(const PlannedRun& run, const char* key) { return option_count(run, key).value_or(0); }

// What the run's program would refuse of its options: it would do so when the runs of an overwritten experiment have
// gone.
void check_run(const PlannedRun& run, int64_t vocabulary) {
  const Json& options = run.options;
  const auto variant = options["variant"].get<std::string>();
  const ScheduleFractions fractions{options["warmup-fraction"].get<double>(), options["taper-start"].get<double>(),
                                    options["taper-end"].get<double>()};
  make_schedule(count_of(run, "steps"), options["lr"].get<double>(), fractions,
                variant == "internal" || variant == "all");
  if (run.program != "pretrain") {
    const fs::path source = options["model"].get<std::string>();
    if (!fs::exists(source)) return;  // still to be trained, by an earlier run
    const int64_t most = read_model_config(find_model_folder(source)).context;
    require_usage(count_of(run, "context") <= most, "--context: got {}, want at most the model's {}",
                  count_of(run, "context"), most);
    return;
  }
  const ModelOptions model{options["size"].get<std::string>(),
                           options.value("arch", ModelOptions().arch),
                           variant,
                           count_of(run, "width"),
                           count_of(run, "layers"),
                           count_of(run, "heads"),
                           count_of(run, "context")};
  model_config(model, vocabulary);
}

// The experiment's runs; UsageError where one of them could not begin.
std::vector<PlannedRun> checked_plan(const Experiment& experiment, const Scale& scale, const ExperimentOptions& options,
                                     uint64_t seed, int64_t vocabulary) {
  windows_of_step(scale.batch_tokens, scale.context);
  require_usage(seed <= static_cast<uint64_t>(INT64_MAX - kMostSeeds), "--seed: got {}, want at most {}", seed,
                INT64_MAX - kMostSeeds);
  for (const std::string& folder : corpora_of(experiment, options)) {
    OpenedData(folder).check_windows(scale.context, seed);
  }
  std::vector<PlannedRun> runs = experiment.plan(scale);
  for (const PlannedRun& run : runs) check_run(run, vocabulary);
  return runs;
}

// A plan without an experiment's record beside it is somebody else's. The runs planned anew go as well: the old plan
// may be damaged.
void remove_runs(const fs::path& output, std::vector<PlannedRun> runs) {
  if (!fs::exists(output / kExperimentFile)) return;
  try {
    const std::vector<PlannedRun> old = read_plan(output / kPlanFile);
    runs.insert(runs.end(), old.begin(), old.end());
  } catch (const Error& error) {
    print_message(fmt::format("{}; only the runs of the new plan are replaced", error.what()));
  }
  for (const PlannedRun& run : runs) fs::remove_all(output / run.name);
  for (const char* file : {kExperimentFile, kPlanFile, kTableFile, kCoresFile}) fs::remove(output / file);
}

// Files of these names in a folder that holds no experiment are somebody else's; but for the plan of a call that was
// killed before it could write more.
void require_own(const fs::path& output, const std::string& plan, const std::vector<ResultTable>& tables) {
  if (fs::exists(output / kExperimentFile)) return;
  std::vector<fs::path> files{kTableFile, kMarkdownFile};
  for (const ResultTable& table : tables) files.push_back(table.name + ".csv");
  const fs::path planned = output / kPlanFile;
  const bool is_ours = fs::is_regular_file(planned) && read_file(planned, plan.size() + 1) == plan;
  if (!is_ours) files.emplace_back(kPlanFile);
  for (const fs::path& file : files) {
    require_usage(!fs::exists(output / file), "--output: {} is there and no experiment's; want another folder",
                  (output / file).string());
  }
}

// The scale recorded when the experiment was begun, or a new one: what is overwritten goes once nothing about the new
// one can be refused any more. None where a stop was requested. REQUIRES the folder's lock.
std::optional<Scale> begin_or_go_on(const Experiment& experiment, const ExperimentOptions& options, const Cli& cli,
                                    const CommonOptions& common) {
  const Json settings = Json::parse(cli.settings_json(
      {"--output", "--overwrite", "--json", "--quiet", "--profile", "--threads", "--processes", "--config"}));
  if (fs::exists(options.output / kExperimentFile) && !options.overwrites) {
    return recorded_scale(options.output, experiment.name, settings);
  }
  const auto vocabulary =
      static_cast<int64_t>(open_training_data(corpora_of(experiment, options)[0]).info().vocabulary_size);
  const auto check = [&](const Scale& scale) {
    return checked_plan(experiment, scale, options, common.seed, vocabulary);
  };
  const Scale scale = choose_scale(experiment, options, check);
  if (stop_requested()) return {};
  const std::vector<PlannedRun> runs = check(scale);
  const std::string plan = plan_text(runs);
  parse_plan(plan, experiment.name);  // what could not be read again is not written
  require_own(options.output, plan, experiment.tables(scale, {}));
  if (options.overwrites) remove_runs(options.output, runs);
  write_file(options.output / kPlanFile, plan);
  ExperimentRecord record{experiment.name, experiment.question, settings, scale,
                          scale_table(scale, experiment.full, vocabulary, common.precision)};
  record.scale_table.note = experiment.source_of_full;
  write_record(options.output, record);
  return scale;
}

ResultsByName read_results(const std::vector<PlannedRun>& runs, const fs::path& output) {
  ResultsByName results;
  for (const PlannedRun& run : runs) {
    if (is_finished(output / run.name)) results.emplace(run.name, RunResults(output / run.name));
  }
  return results;
}

}  // namespace

void ExperimentOptions::declare(Cli& cli) {
  cli.option("--data", data, "prepared folder to train on").value_name("DIR").required();
  cli.option("--output", output, "folder of the experiment").value_name("DIR").required();
  const CliOption& by_time = cli.option("--budget", budget, "time for all of it, which decides its size")
                                 .unit("minutes")
                                 .above(0)
                                 .at_most(kMostMinutes)
                                 .default_text("none");
  const CliOption& by_paper = cli.flag("--full", is_full, "the published setting; for a machine with a GPU");
  cli.exclusive({&by_time, &by_paper});
  cli.flag("--overwrite", overwrites, "begin anew where --output holds the experiment");
  cli.option("--processes", processes, "runs at once").at_least(1).default_text("measured");
  cli.option("--sizes", sizes, "of models, by their parameters, with commas between them")
      .value_name("SIZE,SIZE")
      .default_text("by the budget");
  cli.option("--seeds", seeds, "runs of each kind; the first seed is --seed")
      .range(1, kMostSeeds)
      .default_text("by the budget");
  cli.option("--steps", steps, "of each run").unit("steps").range(1, kMostSteps).default_text("by the budget");
  cli.option("--batch-tokens", batch_tokens, "of a step")
      .unit("tokens")
      .range(1, kMostBatchTokens)
      .default_text("the scale's");
  cli.option("--context", context, "of a window").unit("tokens").at_least(1).default_text("the scale's");
  cli.option("--lr", peak, "peak of the learning rate").above(0).default_text("the scale's");
  cli.option("--warmup-fraction", warmup, "part of the steps in which the learning rate rises")
      .range(0, 1)
      .default_text("the scale's");
  cli.option("--taper-start", taper_start, "part of the steps after which norms taper")
      .range(0, 1)
      .default_text("the warm-up's");
  cli.option("--taper-end", taper_end, "part of the steps after which they are gone")
      .above(0)
      .at_most(1)
      .default_text("the scale's");
  cli.option("--width", width, "of the residual stream").at_least(1).default_text("the size's");
  cli.option("--layers", layers, "blocks").at_least(1).default_text("the size's");
  cli.option("--heads", heads, "of attention").at_least(1).default_text("the size's");
}

Json pretrain_options(const ExperimentOptions& options, const CommonOptions& common, const Scale& scale,
                      const std::string& size, const std::string& variant, double anchor, int64_t seed) {
  Json run;
  run["data"] = options.data;
  run["size"] = size;
  if (options.width > 0) run["width"] = options.width;
  if (options.layers > 0) run["layers"] = options.layers;
  if (options.heads > 0) run["heads"] = options.heads;
  run["context"] = scale.context;
  run["variant"] = variant;
  run["anchor"] = anchor;
  run["steps"] = scale.steps;
  run["batch-tokens"] = scale.batch_tokens;
  run["lr"] = scale.peak;
  run["warmup-fraction"] = scale.warmup;
  run["taper-start"] = scale.taper_start;
  run["taper-end"] = scale.taper_end;
  run["seed"] = seed;
  run["precision"] = common.precision;
  run["device"] = common.device;
  run["eval-every"] = std::max<int64_t>(1, scale.steps / kEvaluations);
  run["eval-tokens"] = kEvaluationTokens;
  run["save-every"] = std::clamp<int64_t>(scale.steps / kEvaluations, 1, 250);
  run["keep-last"] = 1;
  run["sample-tokens"] = 0;
  return run;
}

int run_experiment(const Experiment& experiment, const ExperimentOptions& options, const Cli& cli,
                   const CommonOptions& common) {
  for (const std::string& folder : corpora_of(experiment, options)) {
    open_training_data(folder);
    open_validation_data(folder);
  }
  const FolderLock lock(options.output);
  const std::optional<Scale> scale = begin_or_go_on(experiment, options, cli, common);
  if (!scale) return 0;
  print_message(fmt::format("{}: {} steps of {} tokens, models {}, {} seeds", experiment.name, scale->steps,
                            scale->batch_tokens, fmt::join(scale->sizes, " "), scale->seeds));
  const std::vector<PlannedRun> runs = read_plan(options.output / kPlanFile);
  PlanOptions plan;
  plan.output = options.output;
  plan.processes = options.processes;
  plan.threads = common.threads;
  plan.go_on = "the same command";
  const PlanResult result = run_plan(runs, plan);
  if (result.was_stopped) return 0;
  std::vector<ResultTable> tables = experiment.tables(*scale, read_results(runs, options.output));
  tables.push_back(recorded_scale_table(options.output));
  const Json json = write_tables(options.output, experiment.name, experiment.question, tables);
  if (common.json) {
    write_result(json.dump() + "\n");
  } else {
    for (const ResultTable& table : tables) write_result(to_text(table) + "\n");
  }
  require_all_finished(result, plan);
  return 0;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::vector<std::string> parse_sizes(const std::string& option, const std::string& text) {
  std::vector<std::string> sizes = split_at_commas(text);
  for (const std::string& size : sizes) {
    const std::vector<std::string> known = size_names();
    require_usage(std::count(known.begin(), known.end(), size) == 1, "{}: unknown size; got '{}', want some of {}",
                  option, size, fmt::join(known, ","));
    require_usage(std::count(sizes.begin(), sizes.end(), size) == 1, "{}: got {} twice", option, size);
  }
  return sizes;
}

std::vector<double> parse_numbers(const std::string& option, const std::string& text, double least) {
  std::vector<double> numbers;
  for (const std::string& part : split_at_commas(text)) {
    char* end = nullptr;
    const double number = std::strtod(part.c_str(), &end);
    const bool is_number = !part.empty() && *end == 0 && std::isfinite(number) && number >= least;
    require_usage(is_number, "{}: got '{}', want numbers of at least {:g} with commas between them", option, part,
                  least);
    // Runs are named by it.
    const auto is_same = [&](double other) { return short_number(other) == short_number(number); };
    require_usage(std::none_of(numbers.begin(), numbers.end(), is_same), "{}: got {} twice", option,
                  short_number(number));
    require_usage(numbers.size() < kMostNumbers, "{}: too many numbers; want at most {}", option, kMostNumbers);
    numbers.push_back(number);
  }
  return numbers;
}

std::string short_number(double value) {
  std::string text = fmt::format("{:g}", value);
  text.erase(std::remove(text.begin(), text.end(), '+'), text.end());  // of 1e+06
  return text;
}

}  // namespace taper
