// Runs a file of training runs, one after another or as many at once as the cores serve best; skips what is finished
// and goes on with what was stopped. The file's form: tools/common/plan.h. Example:
//   run-plan plan.jsonl --output runs/plan
#include "tools/common/run_plan.h"

#include "engine/core/error.h"
#include "engine/io/folder_lock.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

int run(int argc, char** argv) {
  std::string plan;
  PlanOptions options;
  Cli cli("run-plan", "Runs a file of training runs; what is finished is skipped, what was stopped goes on.");
  cli.positional("PLAN", plan, "JSON lines, one run each: {\"name\", \"program\", \"options\"[, \"after\"]}")
      .required();
  cli.option("--output", options.output, "folder of the runs").value_name("DIR").required();
  cli.option("--processes", options.processes, "runs at once").at_least(1).default_text("measured");
  cli.footer(
      "A line of PLAN:\n  {\"name\": \"all-seed0\", \"program\": \"pretrain\", \"options\": {\"data\": \"tokens\", "
      "\"size\": \"1M\", \"steps\": 500}}");
  const CommonOptions common = cli.parse(argc, argv);
  options.threads = common.threads;
  options.go_on = fmt::format("run-plan {} --output {}", plan, options.output.string());
  const std::vector<PlannedRun> runs = read_plan(plan);
  const FolderLock lock(options.output);
  const PlanResult result = run_plan(runs, options);
  if (result.was_stopped) return 0;
  require_all_finished(result, options);
  nlohmann::ordered_json finished;
  for (const PlannedRun& run : runs) finished.push_back({{"name", run.name}, {"folder", options.output / run.name}});
  if (common.json) {
    write_result(finished.dump() + "\n");
    return 0;
  }
  for (const PlannedRun& run : runs) write_result((options.output / run.name).string() + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
