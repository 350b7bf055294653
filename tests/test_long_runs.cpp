// What only shows in long runs: killed processes, memory and descriptors. TAPER_KILLS and TAPER_SOAK_STEPS make them
// long.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/core/error.h"
#include "tests/support/faults.h"
#include "tests/support/prepared_stories.h"
#include "tests/support/tiny_run.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoll(text) : otherwise;
}

// pretrain with a save after every step.
class ShortRuns {
 public:
  static constexpr int64_t kSteps = 24;

  ProcessResult call(const std::string& output, const std::string& flag, double kill_after_s) const {
    std::vector<std::string> arguments = tiny_pretrain(stories_, output, kSteps);
    for (const char* more : {"--save-every", "1", "--eval-every", "6", "--variant", "all", "--quiet"})
      arguments.push_back(more);
    if (!flag.empty()) arguments.push_back(flag);
    ProcessOptions options;
    options.timeout_s = kill_after_s;
    return run_process(binary("pretrain"), arguments, options);
  }
  fs::path folder(const std::string& output) const { return stories_.path(output); }

 private:
  PreparedStories stories_;
};

struct Resources {
  int64_t resident_pages = 0;
  int64_t descriptors = 0;
};

Resources resources_now() {
  Resources now;
  int64_t all = 0;
  std::ifstream("/proc/self/statm") >> all >> now.resident_pages;
  now.descriptors = std::distance(fs::directory_iterator("/proc/self/fd"), {});
  return now;
}

}  // namespace

TEST_CASE("long runs: killed at any moment, a run that saves every step goes on to the same bits") {
  const ShortRuns runs;
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(runs.call("whole", "", 60).exit_code == 0);
  const double whole_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string wanted = state_of(runs.folder("whole"), ShortRuns::kSteps);
  const int64_t asked = number_from("TAPER_KILLS", 6);
  std::mt19937_64 random(static_cast<uint64_t>(asked));
  std::uniform_real_distribution<double> moment(0, whole_s);
  int64_t kills = 0, anew = 0, same = 0, trials = 0;
  while (kills < asked) {
    ++trials;
    ProcessResult result = runs.call("killed", "", moment(random));
    // Killed once, or a second and third time while it resumes.
    for (int64_t more = static_cast<int64_t>(random() % 3); result.timed_out; --more) {
      ++kills;
      const double until = more > 0 ? moment(random) : 60;
      result = runs.call("killed", "--resume", until);
      if (!result.timed_out && result.exit_code == 2) {
        // Killed before the first step was saved: nothing is there to be lost.
        REQUIRE(result.err.find("has no complete checkpoint") != std::string::npos);
        ++anew;
        result = runs.call("killed", "--overwrite", 60);
      }
    }
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    const bool is_same = state_of(runs.folder("killed"), ShortRuns::kSteps) == wanted;
    CHECK(is_same);
    same += is_same ? 1 : 0;
    fs::remove_all(runs.folder("killed"));
  }
  MESSAGE(kills, " kills in ", trials, " runs of ", whole_s, " s, ", anew, " of them before the first save; ", same,
          " runs ended with the same bits");
  CHECK(same == trials);
}

TEST_CASE("long runs: memory and file descriptors stay flat") {
  const TempDir folder;
  TinyRun tiny(folder.path());
  const int64_t steps = number_from("TAPER_SOAK_STEPS", 500);
  tiny.trainer.schedule = make_schedule(steps, 1e-3, {0.1, 0.3, 0.6}, true);
  tiny.options.evaluate_every = steps / 10;
  tiny.options.save_every = steps / 20;
  tiny.options.keeping.last = 2;
  std::vector<Resources> seen;
  tiny.options.after_evaluation = [&](int64_t) { seen.push_back(resources_now()); };
  tiny.run(folder / "run");
  REQUIRE(seen.size() == 10);
  // What a run needs it has by the middle: every phase of the taper has begun.
  const Resources middle = seen[6], end = seen[9];
  MESSAGE(steps, " steps: ", middle.resident_pages * 4, " KiB after 7/10 of them, ", end.resident_pages * 4,
          " KiB at the end; ", middle.descriptors, " and ", end.descriptors, " descriptors");
  CHECK(end.descriptors == middle.descriptors);
  // A sanitizer keeps what is freed for a while, to see who comes back to it.
  if (kFaultsStrike) CHECK(end.resident_pages - middle.resident_pages <= 128);
}
