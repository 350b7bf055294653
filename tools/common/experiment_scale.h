// How large an experiment is: by the time there is, by the steps given, or as published.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/common/experiment.h"

namespace taper {

inline constexpr int64_t kGoodSteps = 1000;
inline constexpr int64_t kFewestSteps = 50;
inline constexpr int64_t kEvaluations = 10;  // on the way of a run, besides the one at its end
inline constexpr int64_t kEvaluationTokens = 8192;

// The folders of the data.
std::vector<std::string> corpora_of(const Experiment& experiment, const ExperimentOptions& options);

// The scale asked for. `check` throws for one whose runs could not begin, and is asked before anything is measured.
// With a stop requested while measuring, any scale. UsageError where neither time nor steps are given, or both, or too
// little.
Scale choose_scale(const Experiment& experiment, const ExperimentOptions& options,
                   const std::function<void(const Scale& scale)>& check);

// What a budget chooses among: before `scaled` its first at a quarter and at half of the tokens a step, with a warm-up
// of a tenth of the steps and a taper to their middle at least. What a short run lacks is steps: a taper of a few dozen
// diverges.
std::vector<Scale> scales_for_budget(const std::vector<Scale>& scaled);

// The last of `scales` whose steps come to kGoodSteps, or to all of `full_steps`; else the first, with as many steps as
// there is time for.
Scale largest_scale(const std::vector<Scale>& scales, int64_t full_steps,
                    const std::function<int64_t(const Scale& scale)>& steps_within);

}  // namespace taper
