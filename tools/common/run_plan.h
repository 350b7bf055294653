// Runs a plan (tools/common/plan.h) into a folder:
//   OUTPUT/NAME/           the folder of each run
//   OUTPUT/logs/NAME.txt   what its program said
//   OUTPUT/cores.json      how many run at once (tools/common/core_use.h)
// What is finished already is left as it is, what was begun goes on from its last checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/common/plan.h"

namespace taper {

struct PlanOptions {
  std::filesystem::path output;
  int processes = 0;  // at once; 0: measured
  int threads = 0;    // all together; 0: the engine's default
  std::string go_on;  // the command that goes on with this plan, for the message after a signal
};

struct PlanResult {
  bool was_stopped = false;  // by a signal; the runs have saved
  std::vector<std::string> failed;
};

// The caller holds the folder's FolderLock, and with it the runs' processes: a plan is not begun a second time while a
// run of the first still saves. UsageError, before any work, where a finished run in the folder has other options than
// the plan says, or an option that counts something is no count. A run that fails is reported and named in the result;
// the others go on, but for those that come after it.
PlanResult run_plan(const std::vector<PlannedRun>& runs, const PlanOptions& options);

// Error that names the failed runs, if there are any.
void require_all_finished(const PlanResult& result, const PlanOptions& options);

// Whether RUN/summary.json is there.
bool is_finished(const std::filesystem::path& run);

}  // namespace taper
