// The program run-plan as a user calls it.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "engine/core/error.h"
#include "tests/support/prepared_stories.h"
#include "tools/common/plan.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

namespace {

nlohmann::ordered_json options_of(const PreparedStories& stories, const std::string& variant, int steps) {
  return {{"data", stories.data()}, {"size", "1M"}, {"width", 16},        {"layers", 1},    {"heads", 2},
          {"context", 16},          {"lr", 1e-2},   {"batch-tokens", 64}, {"steps", steps}, {"variant", variant},
          {"save-every", 50}};
}

ProcessResult run_plan(const PreparedStories& stories, const std::vector<PlannedRun>& runs, const std::string& output,
                       const ProcessOptions& options = {}, const std::string& processes = "2") {
  const std::string file = stories.folder().write("plan.jsonl", plan_text(runs)).string();
  return run_process(
      binary("run-plan"),
      {file, "--output", stories.path(output), "--processes", processes, "--threads", processes, "--json"}, options);
}

std::string model_of(const PreparedStories& stories, const std::string& run, int steps) {
  return read_file(stories.folder() / run / ("step-" + std::to_string(steps)) / "model.safetensors");
}

}  // namespace

TEST_CASE("run-plan: stopped in the middle and called again, it ends with the same bits") {
  const PreparedStories stories;
  const int steps = 300;
  const std::vector<PlannedRun> runs{{"first", "pretrain", options_of(stories, "baseline", 20), ""},
                                     {"second", "pretrain", options_of(stories, "all", steps), ""},
                                     {"third", "pretrain", options_of(stories, "internal", steps), "first"}};
  const ProcessResult whole = run_plan(stories, runs, "whole");
  CAPTURE(whole.err);
  REQUIRE(whole.exit_code == 0);
  CHECK(nlohmann::json::parse(whole.out).size() == 3);
  for (const int signal : {2, 15}) {
    CAPTURE(signal);
    const std::string output = "stopped" + std::to_string(signal);
    ProcessOptions stop;
    stop.signal = signal;
    stop.signal_after = "third begins";
    const ProcessResult stopped = run_plan(stories, runs, output, stop);
    CAPTURE(stopped.err);
    CHECK(stopped.exit_code == 130);
    CHECK(stopped.out.empty());
    CHECK(stopped.err.find("go on with: run-plan ") != std::string::npos);
    CHECK(fs::exists(stories.folder() / output / "first/summary.json"));
    CHECK_FALSE(fs::exists(stories.folder() / output / "third/summary.json"));
    const auto first_made = fs::last_write_time(stories.folder() / output / "first/summary.json");

    const ProcessResult resumed = run_plan(stories, runs, output);
    CAPTURE(resumed.err);
    CHECK(resumed.exit_code == 0);
    CHECK(resumed.err.find("goes on where it was stopped") != std::string::npos);
    CHECK(resumed.err.find("first begins") == std::string::npos);
    CHECK(fs::last_write_time(stories.folder() / output / "first/summary.json") == first_made);
    for (const char* run : {"second", "third"}) {
      CAPTURE(run);
      CHECK(model_of(stories, output + "/" + run, steps) == model_of(stories, std::string("whole/") + run, steps));
    }
  }
}

TEST_CASE("run-plan: finished runs with other options are refused, failures are named and hinder no other") {
  const PreparedStories stories;
  std::vector<PlannedRun> runs{{"good", "pretrain", options_of(stories, "baseline", 3), ""}};
  REQUIRE(run_plan(stories, runs, "plan").exit_code == 0);
  runs[0].options["lr"] = 3e-3;
  const ProcessResult other = run_plan(stories, runs, "plan");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("is a finished run with another lr; got 0.01, want 0.003") != std::string::npos);

  runs[0].options["lr"] = 1e-2;
  runs.push_back({"bad", "pretrain", {{"no-such-option", 1}}, ""});
  runs.push_back({"after-bad", "pretrain", options_of(stories, "baseline", 3), "bad"});
  runs.push_back({"other", "pretrain", options_of(stories, "all", 10), ""});
  const ProcessResult failed = run_plan(stories, runs, "plan", {}, "1");
  CAPTURE(failed.err);
  CHECK(failed.exit_code == 1);
  CHECK(failed.err.find("bad failed with exit code 2: pretrain: ") != std::string::npos);
  CHECK(failed.err.find("after-bad is left out: bad has failed") != std::string::npos);
  CHECK(failed.err.find("2 of its runs failed: bad, after-bad") != std::string::npos);
  CHECK(fs::exists(stories.folder() / "plan/other/summary.json"));
}

TEST_CASE("run-plan: options that are text, numbers among them") {
  const PreparedStories stories;
  nlohmann::ordered_json options = options_of(stories, "baseline", 3);
  for (const char* key : {"context", "batch-tokens", "steps", "lr"}) options[key] = options[key].dump();
  std::vector<PlannedRun> runs{{"text", "pretrain", options, ""}};
  const std::string file = stories.folder().write("plan.jsonl", plan_text(runs)).string();
  const ProcessResult measured =
      run_process(binary("run-plan"), {file, "--output", stories.path("plan"), "--threads", "1"});
  CAPTURE(measured.err);
  CHECK(measured.exit_code == 0);
  const ProcessResult again = run_plan(stories, runs, "plan");
  CAPTURE(again.err);
  CHECK(again.exit_code == 0);
  CHECK(again.err.find("1 of them finished before") != std::string::npos);
  runs[0].options["batch-tokens"] = "many";
  const ProcessResult refused = run_plan(stories, runs, "other");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("plan: text: --batch-tokens: got \"many\", want a whole number") != std::string::npos);
}

TEST_CASE("run-plan: ends where it was started with SIGCHLD ignored") {
  const PreparedStories stories;
  const std::vector<PlannedRun> runs{{"a", "pretrain", options_of(stories, "baseline", 3), ""}};
  const std::string file = stories.folder().write("plan.jsonl", plan_text(runs)).string();
  const ProcessResult result =
      run_process("/bin/sh", {"-c", "trap '' CHLD; exec \"$0\" \"$@\"", binary("run-plan"), file, "--output",
                              stories.path("plan"), "--processes", "1", "--threads", "1"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("run-plan: the cores' use is measured once, and kept") {
  const PreparedStories stories;
  std::vector<PlannedRun> runs;
  for (const char* name : {"a", "b"}) runs.push_back({name, "pretrain", options_of(stories, "baseline", 3), ""});
  const std::string file = stories.folder().write("plan.jsonl", plan_text(runs)).string();
  const auto call = [&] {
    return run_process(binary("run-plan"), {file, "--output", stories.path("plan"), "--threads", "2"});
  };
  const ProcessResult first = call();
  CAPTURE(first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(first.err.find("measuring") != std::string::npos);
  const std::string kept = read_file(stories.folder() / "plan/cores.json");
  const nlohmann::json uses = nlohmann::json::parse(kept);
  for (const auto& [shape, use] : uses.items()) {
    CHECK(use["processes"].get<int>() * use["threads"].get<int>() == 2);
    CHECK(use["tokens_per_s"] > 0);
  }
  fs::remove_all(stories.folder() / "plan/b");
  const ProcessResult second = call();
  CHECK(second.exit_code == 0);
  CHECK(second.err.find("measuring") == std::string::npos);
  CHECK(second.err.find("b begins") != std::string::npos);
  CHECK(read_file(stories.folder() / "plan/cores.json") == kept);
  stories.folder().write("plan/cores.json", "[]");
  fs::remove_all(stories.folder() / "plan/b");
  CHECK(call().err.find("cores.json: is damaged") != std::string::npos);
}
