#include "tools/common/experiment_scale.h"

#include <algorithm>

#include "data/prepared_data.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "tools/common/core_use.h"

namespace taper {
namespace {

// Part of the time that is planned for: runs start, save, and share the machine.
constexpr double kPlannedPart = 0.9;
// A token of an evaluation costs a third of one in training, forward and backward.
constexpr double kEvaluationCost = 1.0 / 3;
constexpr double kStartSeconds = 1;

// Seconds that a plan takes, by the measured speed of its shapes; a run that cannot be measured is as fast as the one
// before it.
double seconds_of(const std::vector<PlannedRun>& runs, CoreUses& uses, int64_t valid_tokens) {
  double seconds = 0, speed = 0;
  for (const PlannedRun& run : runs) {
    const CoreUse use = uses.of(run, static_cast<int>(runs.size()));
    if (stop_requested()) return 0;
    if (use.tokens_per_s > 0) speed = use.tokens_per_s;
    const auto trained =
        static_cast<double>(option_count(run, "steps").value_or(0) * option_count(run, "batch-tokens").value_or(0));
    const auto evaluated = static_cast<double>(kEvaluations * kEvaluationTokens + valid_tokens);
    seconds += kStartSeconds / use.processes + (trained + kEvaluationCost * evaluated) / std::max(speed, 1.0);
  }
  return seconds;
}

void apply_given(Scale& scale, const ExperimentOptions& options) {
  if (!options.sizes.empty()) scale.sizes = parse_sizes("--sizes", options.sizes);
  if (options.seeds > 0) scale.seeds = options.seeds;
  if (options.steps > 0) scale.steps = options.steps;
  if (options.batch_tokens > 0) scale.batch_tokens = options.batch_tokens;
  if (options.context > 0) scale.context = options.context;
  if (options.peak > 0) scale.peak = options.peak;
  if (options.warmup >= 0) scale.warmup = scale.taper_start = options.warmup;
  if (options.taper_start >= 0) scale.taper_start = options.taper_start;
  if (options.taper_end > 0) scale.taper_end = options.taper_end;
}

// The steps that fit into the budget; 0 where a stop was requested.
int64_t steps_within(double seconds, const Experiment& experiment, Scale scale, CoreUses& uses, int64_t valid_tokens) {
  constexpr int64_t kMany = 1000;
  scale.steps = kMany;
  const double of_many = seconds_of(experiment.plan(scale), uses, valid_tokens);
  scale.steps = 2 * kMany;
  const double of_twice = seconds_of(experiment.plan(scale), uses, valid_tokens);
  if (stop_requested()) return 0;
  const double each = (of_twice - of_many) / kMany, fixed = of_many - each * kMany;
  const auto steps = static_cast<int64_t>((kPlannedPart * seconds - fixed) / each);
  return steps >= 100 ? steps / 10 * 10 : steps;
}

Scale scale_by_budget(const Experiment& experiment, const ExperimentOptions& options,
                      const std::function<void(const Scale&)>& check) {
  const bool has_own_batch = options.batch_tokens > 0;
  std::vector<Scale> scales;
  for (Scale scale : has_own_batch ? experiment.scaled : scales_for_budget(experiment.scaled)) {
    apply_given(scale, options);
    const bool holds_windows = scale.batch_tokens % scale.context == 0;
    if (holds_windows || has_own_batch) scales.push_back(scale);
  }
  Scale first = experiment.scaled.front();
  apply_given(first, options);
  if (!scales.empty()) first = scales.front();
  first.steps = std::min(kGoodSteps, experiment.full.steps);
  check(first);
  CoreUses uses(options.output);
  const auto valid_tokens = static_cast<int64_t>(open_validation_data(corpora_of(experiment, options)[0]).size());
  const Scale chosen = largest_scale(scales, experiment.full.steps, [&](const Scale& scale) {
    return steps_within(60 * options.budget, experiment, scale, uses, valid_tokens);
  });
  require_usage(chosen.steps >= kFewestSteps || stop_requested(),
                "--budget: too little for this experiment here; got {} minutes, for {} steps of each run, want at "
                "least {}",
                options.budget, std::max<int64_t>(chosen.steps, 0), kFewestSteps);
  return chosen;
}

}  // namespace

std::vector<std::string> corpora_of(const Experiment& experiment, const ExperimentOptions& options) {
  return experiment.has_corpora ? split_at_commas(options.data) : std::vector<std::string>{options.data};
}

Scale choose_scale(const Experiment& experiment, const ExperimentOptions& options,
                   const std::function<void(const Scale&)>& check) {
  require_usage(options.budget > 0 || options.is_full || options.steps > 0,
                "{}: how much is to be done? Want --budget MINUTES, --full or --steps N", experiment.name);
  require_usage(options.budget == 0 || options.steps == 0,
                "--budget and --steps: each says how much; want one of them");
  if (options.budget > 0) return scale_by_budget(experiment, options, check);
  Scale scale = options.is_full ? experiment.full : experiment.scaled.front();
  apply_given(scale, options);
  return scale;
}

Scale published_scale() {
  Scale scale;
  scale.sizes = {"1M", "3M", "9M", "30M"};
  scale.seeds = 6;
  scale.batch_tokens = 16384;
  scale.context = 512;
  scale.steps = 2'100'000'000 / scale.batch_tokens;
  scale.peak = 6e-4;
  scale.warmup = 0.02;
  scale.taper_start = 0.05;
  scale.taper_end = 0.4;
  return scale;
}

std::vector<Scale> scales_for_budget(const std::vector<Scale>& scaled) {
  std::vector<Scale> all;
  for (const int64_t divisor : {4, 2}) {
    Scale small = scaled.front();
    small.batch_tokens /= divisor;
    small.warmup = std::max(small.warmup, 0.1);
    small.taper_start = std::max(small.taper_start, 0.1);
    small.taper_end = std::max(small.taper_end, 0.5);
    all.push_back(small);
  }
  all.insert(all.end(), scaled.begin(), scaled.end());
  return all;
}

Scale largest_scale(const std::vector<Scale>& scales, int64_t full_steps,
                    const std::function<int64_t(const Scale& scale)>& steps_within) {
  Scale chosen;
  for (Scale scale : scales) {
    scale.steps = std::min(steps_within(scale), full_steps);
    const bool is_first = chosen.sizes.empty();
    if (!is_first && scale.steps < std::min(kGoodSteps, full_steps)) break;
    chosen = scale;
    if (chosen.steps < kFewestSteps) break;
  }
  return chosen;
}

}  // namespace taper
