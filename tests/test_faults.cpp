// Walks a fault over every call of a kind that a resumed run makes: opening, reading, writing, syncing, renaming,
// making folders, taking memory. Whatever fails, the work done before is still there, and the run ends with the same
// bits once the trouble is over. Calls are so many that some kinds are tried in strides; TAPER_FAULTS=all makes them
// short.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "model/model_folder.h"
#include "tests/support/faults.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_run.h"
#include "train/checkpoint.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

constexpr Fault kFaults[] = {{Call::open, EACCES},   {Call::open, EMFILE, true},  {Call::read, EIO},
                             {Call::write, EIO},     {Call::write, ENOSPC, true}, {Call::sync, EIO},
                             {Call::rename, EACCES}, {Call::make_folder, ENOSPC}, {Call::memory, ENOMEM}};
constexpr int64_t kLast = 12;  // steps of the run

// Faults of a kind, spread over all its calls.
int64_t most_faults() {
  const char* text = std::getenv("TAPER_FAULTS");
  return text != nullptr && std::string_view(text) == "all" ? 400 : 12;
}

int64_t newest_step(const fs::path& run) {
  const auto newest = newest_checkpoint(run, [](const std::string&) {});
  return newest ? checkpoint_step(*newest).value_or(-1) : -1;
}

struct Tally {
  int64_t tried = 0, refused = 0, lost = 0;
};

// The run of all tests here: `steps` of them are done in `before`.
class Scene {
 public:
  explicit Scene(int64_t steps) : tiny_(folder_.path()), steps_(steps) {
    tiny_.options.evaluate_every = kLast;
    tiny_.run(folder_ / "before");
    wanted_ = state_of(folder_ / "before", kLast);
    for (int64_t step = steps + 1; step <= kLast; ++step)
      fs::remove_all(folder_ / ("before/step-" + std::to_string(step)));
    for (int64_t step = 1; step < steps; ++step) fs::remove_all(folder_ / ("before/step-" + std::to_string(step)));
    // One checkpoint is kept: the old one goes when the new one is there.
    tiny_.options.keeping.last = 1;
  }

  // That a run without trouble makes.
  int64_t calls_of(const Fault& fault) {
    begin_again();
    const PlantedFault never(fault, std::numeric_limits<int64_t>::max());
    tiny_.run(folder_ / "run", true);
    return never.calls();
  }

  // Resumes with the n-th call failing; nothing is tried where there are fewer calls.
  void survives(const Fault& fault, int64_t n, Tally& tally) {
    begin_again();
    const fs::path run = folder_ / "run";
    bool has_finished = true, has_struck = false;
    {
      const PlantedFault planted(fault, n);
      try {
        tiny_.run(run, true);
      } catch (const std::exception&) {
        has_finished = false;
      }
      has_struck = planted.has_struck();
    }
    if (!has_struck) return;
    ++tally.tried;
    if (!has_finished) ++tally.refused;
    CAPTURE(to_string(fault.call));
    CAPTURE(fault.error);
    CAPTURE(n);
    const bool is_kept = newest_step(run) >= (has_finished ? kLast : steps_);
    CHECK(is_kept);
    bool is_same = is_kept && (!has_finished || state_of(run, kLast) == wanted_);
    CHECK(is_same);
    // The trouble is over: the run goes on from what is there.
    if (is_kept) {
      tiny_.run(run, true);
      is_same = is_same && state_of(run, kLast) == wanted_;
      CHECK(is_same);
    }
    if (!is_same) ++tally.lost;
  }

 private:
  void begin_again() {
    // What earlier runs left for reuse would be taken without a call.
    release_cached_memory();
    fs::remove_all(folder_ / "run");
    fs::copy(folder_ / "before", folder_ / "run", fs::copy_options::recursive);
  }

  TempDir folder_;
  TinyRun tiny_;
  int64_t steps_;
  std::string wanted_;
};

void walk(Scene& scene, const Fault& fault, Tally& all) {
  const int64_t calls = scene.calls_of(fault);
  const int64_t stride = (calls + most_faults() - 1) / most_faults();
  Tally tally;
  for (int64_t n = 1; n <= calls; n += stride) scene.survives(fault, n, tally);
  MESSAGE(std::string(to_string(fault.call)), std::string(fault.lasts ? " from a call on: " : ", one call: "),
          tally.tried, " faults in ", calls, " calls, ", tally.refused, " ended the run, ", tally.lost, " lost work");
  CHECK(tally.tried > 0);
  all.tried += tally.tried;
  all.lost += tally.lost;
}

}  // namespace

TEST_CASE("faults: whatever call fails in a resume, a step and a save, no work is lost") {
  if (!kFaultsStrike) SKIP_TEST("a sanitizer holds the calls that faults replace");
  Scene scene(kLast - 1);
  Tally all;
  for (const Fault& fault : kFaults) walk(scene, fault, all);
  MESSAGE(all.tried, " faults tried, ", all.lost, " lost work");
  CHECK(all.lost == 0);
}

TEST_CASE("faults: a save on the way that fails does not end the run") {
  if (!kFaultsStrike) SKIP_TEST("a sanitizer holds the calls that faults replace");
  Scene scene(kLast - 3);
  Tally all;
  for (const Fault& fault : {Fault{Call::sync, EIO}, Fault{Call::write, EIO}, Fault{Call::rename, EACCES}}) {
    walk(scene, fault, all);
  }
  CHECK(all.lost == 0);
}
