// How the processor's cores are given to training runs: one process with all threads, or several with fewer, whichever
// is measured to be faster. Small models gain: their steps are too short to be divided well.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>

#include "tools/common/plan.h"

namespace taper {

inline constexpr const char* kCoresFile = "cores.json";

struct CoreUse {
  int processes = 1;
  int threads = 1;          // of each
  double tokens_per_s = 0;  // of all together; 0: not measured
};

// Measures steps of such a run with train-bench, for a few seconds; `most_processes` bounds the processes. Files of the
// measurement go to `folder`. With a stop requested it returns early, with no speed. A run that train-bench cannot
// repeat (finetune of a model still to be trained), or that has "threads" of its own, is not measured: one process.
CoreUse measure_core_use(const PlannedRun& run, int most_processes, const std::filesystem::path& folder);

// What of a run decides its speed, as text: runs of one shape share a measurement.
std::string shape_of(const PlannedRun& run);

// Measurements kept in FOLDER/kCoresFile, so that a plan that goes on has its threads as before: sums, and with them
// the last bits of a result, depend on their number.
class CoreUses {
 public:
  explicit CoreUses(const std::filesystem::path& folder);  // Error where the file is damaged

  // Measured, where it was not yet.
  CoreUse of(const PlannedRun& run, int most_processes);
  // Given, not measured.
  void set(const PlannedRun& run, const CoreUse& use);

 private:
  void save() const;

  std::filesystem::path folder_;
  nlohmann::ordered_json uses_;
};

}  // namespace taper
