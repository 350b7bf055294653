#include "tools/common/run_plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "model/model_folder.h"
#include "tools/common/child_process.h"
#include "tools/common/core_use.h"
#include "tools/common/run_settings.h"
#include "tools/common/run_tool.h"
#include "train/metrics.h"
#include "train/progress.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxJsonBytes = 1 << 20;
constexpr auto kPollTime = std::chrono::milliseconds(50);
constexpr auto kReportTime = std::chrono::seconds(15);

Json read_json(const fs::path& file) {
  return fs::exists(file) ? try_parse_json<Json>(read_file(file, kMaxJsonBytes)) : Json();
}

// Numbers may be written as text in a plan: "3e-3".
bool is_same_setting(const Json& was, const Json& planned) {
  if (was == planned || (was.is_null() && planned == false)) return true;
  if (!was.is_number() || !planned.is_string()) return was.is_string() && was == planned.dump();
  const auto text = planned.get<std::string>();
  char* end = nullptr;
  return std::strtod(text.c_str(), &end) == was.get<double>() && !text.empty() && *end == 0;
}

void check_finished_run(const PlannedRun& run, const fs::path& folder) {
  const Json settings = read_json(folder / kRunSettingsFile);
  for (const auto& [key, value] : run.options.items()) {
    const Json was = settings.is_object() && settings.contains(key) ? settings[key] : Json();
    require_usage(is_same_setting(was, value),
                  "plan: {} is a finished run with another {}; got {}, want {}; remove it, or choose another "
                  "output folder",
                  folder.string(), key, shown(was), shown(value));
  }
}

// Steps a run has behind it, from the end of its metrics; 0 where nothing can be read.
int64_t steps_done(const fs::path& folder) {
  constexpr std::streamoff kTail = 4096;
  std::ifstream file(folder / kMetricsFile, std::ios::ate);
  if (!file) return 0;
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kTail));
  int64_t steps = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = try_parse_json<Json>(line);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer()) {
      steps = json["step"].get<int64_t>() + (json.contains("loss") ? 1 : 0);
    }
  }
  return steps;
}

std::string last_line(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  return last;
}

class PlanRunner {
 public:
  PlanRunner(const std::vector<PlannedRun>& runs, const PlanOptions& options)
      : options_(options), cores_(options.threads > 0 ? options.threads : thread_count()) {
    for (const PlannedRun& run : runs) {
      Job job{run, options.output / run.name};
      job.steps = option_count(run, "steps").value_or(run.program == "finetune" ? 300 : 2000);
      job.tokens_per_step = static_cast<double>(option_count(run, "batch-tokens").value_or(1));
      if (is_finished(job.folder)) {
        check_finished_run(run, job.folder);
        job.state = State::finished;
      }
      jobs_.push_back(std::move(job));
    }
    fs::create_directories(options.output / "logs");
  }

  PlanResult run() {
    print_message(fmt::format("plan: {} runs, {} of them finished before", jobs_.size(), count(State::finished)));
    decide_cores();
    for (Job& job : jobs_) job.steps_before = job.state == State::finished ? job.steps : steps_done(job.folder);
    begin_ = last_report_ = Clock::now();
    while (!stop_requested() && (start_runs(), count(State::running) > 0)) wait_for_change();
    if (stop_requested()) return stop();
    PlanResult result;
    for (const Job& job : jobs_) {
      if (job.state != State::finished) result.failed.push_back(job.run.name);
    }
    return result;
  }

 private:
  enum class State { waiting, running, finished, failed };
  struct Job {
    PlannedRun run;
    fs::path folder;
    State state = State::waiting;
    CoreUse cores{};
    int64_t steps = 0;
    double tokens_per_step = 1;
    int64_t steps_before = 0;  // when this process began
    std::optional<ChildProcess> child{};
  };

  int64_t count(State state) const {
    return std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.state == state; });
  }

  void decide_cores() {
    CoreUses uses(options_.output);
    for (Job& job : jobs_) {
      if (stop_requested()) return;
      if (job.state == State::finished) continue;
      const auto same = std::count_if(jobs_.begin(), jobs_.end(),
                                      [&](const Job& other) { return shape_of(other.run) == shape_of(job.run); });
      if (options_.processes > 0) {
        const int processes = std::min(options_.processes, cores_);
        uses.set(job.run, {processes, cores_ / processes, 0});
      }
      job.cores = uses.of(job.run, static_cast<int>(same));
    }
  }

  // In the plan's order, as long as there are cores for the next one.
  void start_runs() {
    for (Job& job : jobs_) {
      if (job.state != State::waiting) continue;
      const State before = state_before(job);
      if (before == State::failed) {
        job.state = State::failed;
        print_message(fmt::format("plan: {} is left out: {} has failed", job.run.name, job.run.after));
        continue;
      }
      if (before != State::finished || !has_room(job)) return;
      start(job);
    }
  }

  State state_before(const Job& job) const {
    for (const Job& other : jobs_) {
      if (other.run.name == job.run.after) return other.state;
    }
    return State::finished;
  }

  bool has_room(const Job& job) const {
    int used = 0;
    for (const Job& other : jobs_) {
      if (other.state == State::running) used += other.cores.threads;
    }
    return used == 0 || used + job.cores.threads <= cores_;
  }

  void start(Job& job) {
    std::vector<std::string> arguments = arguments_of(job.run.options);
    arguments.push_back("--output=" + job.folder.string());
    if (!job.run.options.contains("threads")) arguments.push_back("--threads=" + std::to_string(job.cores.threads));
    arguments.push_back("--json");
    if (!complete_checkpoints(job.folder).empty()) {
      arguments.push_back("--resume");
    } else if (fs::exists(job.folder)) {
      arguments.push_back("--overwrite");
    }
    const fs::path log = log_of(job);
    job.child.emplace(sibling_program(job.run.program), arguments, log, log);
    job.state = State::running;
    print_message(fmt::format("plan: {} {}", job.run.name,
                              arguments.back() == "--resume" ? "goes on where it was stopped" : "begins"));
  }

  fs::path log_of(const Job& job) const { return options_.output / "logs" / (job.run.name + ".txt"); }

  void wait_for_change() {
    std::this_thread::sleep_for(kPollTime);
    for (Job& job : jobs_) {
      const std::optional<int> code = job.state == State::running ? job.child->poll() : std::nullopt;
      if (code) end(job, *code);
    }
    if (Clock::now() - last_report_ > kReportTime) report();
  }

  void end(Job& job, int code) {
    job.child.reset();
    if (code == 0 && is_finished(job.folder)) {
      job.state = State::finished;
      report();
    } else if (!stop_requested()) {
      job.state = State::failed;
      print_message(fmt::format("plan: {} failed with exit code {}: {}; see {}", job.run.name, code,
                                last_line(log_of(job)), log_of(job).string()));
    } else {
      job.state = State::waiting;
    }
  }

  void report() {
    last_report_ = Clock::now();
    std::string running;
    for (const Job& job : jobs_) {
      if (job.state != State::running) continue;
      running += fmt::format(", {} at step {}/{}", job.run.name, steps_done(job.folder), job.steps);
    }
    print_message(
        fmt::format("plan: {} of {} runs finished{}{}", count(State::finished), jobs_.size(), running, time_left()));
  }

  // By the tokens still to be read, each as dear as its run's measured speed says or, without one, another's.
  std::string time_left() const {
    double done = 0, left = 0;
    for (const Job& job : jobs_) {
      if (job.state == State::failed) continue;
      const double step = step_cost(job);
      const int64_t steps = job.state == State::finished ? job.steps : steps_done(job.folder);
      done += step * static_cast<double>(steps - job.steps_before);
      left += step * static_cast<double>(job.steps - steps);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return done > 0 && left > 0 ? ", " + format_duration(seconds * left / done) + " left" : "";
  }

  double step_cost(const Job& job) const {
    double speed = job.cores.tokens_per_s;
    for (const Job& other : jobs_) speed = speed > 0 ? speed : other.cores.tokens_per_s;
    return job.tokens_per_step / (speed > 0 ? speed : 1);
  }

  PlanResult stop() {
    for (Job& job : jobs_) {
      if (job.state == State::running) job.child->send(SIGTERM);
    }
    while (count(State::running) > 0) {
      std::this_thread::sleep_for(kPollTime);
      for (Job& job : jobs_) {
        const std::optional<int> code = job.state == State::running ? job.child->poll() : std::nullopt;
        if (code) end(job, *code);
      }
    }
    print_message(fmt::format("plan: stopped with {} of {} runs finished, the others saved; go on with: {}",
                              count(State::finished), jobs_.size(), options_.go_on));
    PlanResult result;
    result.was_stopped = true;
    return result;
  }

  const PlanOptions& options_;
  int cores_;
  std::vector<Job> jobs_;
  Clock::time_point begin_, last_report_;
};

}  // namespace

bool is_finished(const fs::path& run) { return fs::exists(run / kSummaryFile); }

PlanResult run_plan(const std::vector<PlannedRun>& runs, const PlanOptions& options) {
  return PlanRunner(runs, options).run();
}

void require_all_finished(const PlanResult& result, const PlanOptions& options) {
  require(result.failed.empty(), "plan: {} of its runs failed: {}; see {}", result.failed.size(),
          fmt::format("{}", fmt::join(result.failed, ", ")), (options.output / "logs").string());
}

}  // namespace taper
