// What the world does to programs at work: signals, readers that go away, disks that fill up, a second call into the
// same folder.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "model/model_folder.h"
#include "tests/support/prepared_stories.h"
#include "tests/support/tiny_run.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

namespace {

// As a shell runs it: "$0" is the program, "$@" its arguments.
ProcessResult in_shell(const std::string& script, const std::string& program, const Arguments& arguments,
                       const ProcessOptions& options = {}) {
  Arguments all = {"-c", script, binary(program)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_process("/bin/sh", all, options);
}

}  // namespace

TEST_CASE("interruptions: one signal ends a benchmark in the middle of a long step") {
  const std::pair<const char*, Arguments> calls[] = {
      {"train-bench", {"--size", "30M", "--batch", "64", "--steps", "2"}},
      {"last-token-bench", {"--size", "30M", "--batch", "64", "--context", "512"}},
      {"bench-machine", {"--size", "1M", "--budget", "60"}}};
  for (const auto& call : calls) {
    const char* program = call.first;
    const Arguments& arguments = call.second;
    CAPTURE(program);
    // One that goes on is killed after two minutes, and its exit code says so.
    const ProcessResult result =
        in_shell("exec timeout --preserve-status -s TERM -k 120 2 \"$0\" \"$@\"", program, arguments);
    CHECK(result.exit_code == 130);
  }
}

TEST_CASE("interruptions: one signal ends a program that waits for its input") {
  const PreparedStories stories;
  const std::string data = stories.data(), pipe = stories.path("pipe"), input = stories.path("input");
  for (const std::string& each : {pipe, input}) REQUIRE(mkfifo(each.c_str(), 0600) == 0);
  // Opened for writing too, the pipe never ends.
  const std::string script = fmt::format("exec timeout --preserve-status -s INT -k 10 1 \"$0\" \"$@\" <>'{}'", input);
  const std::pair<const char*, Arguments> calls[] = {
      {"tokenizer", {"train", "--input", "-", "--output", stories.path("tokenizer-of-nothing")}},
      {"tokenizer", {"encode", "--tokenizer", data}},
      {"tokenizer", {"encode", "--tokenizer", data, "--input", pipe}},
      {"tokenizer", {"decode", "--tokenizer", data}},
      {"prepare", {"--tokenizer", data, "--input", "-", "--output", stories.path("prepared-of-nothing")}}};
  for (const auto& call : calls) {
    const char* program = call.first;
    const Arguments& arguments = call.second;
    CAPTURE(program);
    CAPTURE(arguments[0]);
    const ProcessResult result = in_shell(script, program, arguments);
    CHECK(result.exit_code == 130);
    CHECK(result.out.empty());
  }
  CHECK_FALSE(fs::exists(stories.path("prepared-of-nothing")));
}

TEST_CASE("interruptions: a hang-up saves as other signals do, a run that is to outlive its terminal goes on") {
  const PreparedStories stories;
  ProcessOptions options;
  options.signal = SIGHUP;
  options.signal_after = "steps: 20000";
  const ProcessResult stopped = run_process(binary("pretrain"), tiny_pretrain(stories, "run", 20000), options);
  CHECK(stopped.exit_code == 130);
  CHECK(stopped.err.find("go on with: ") != std::string::npos);
  CHECK_FALSE(complete_checkpoints(stories.path("run")).empty());
  options.signal_after = "steps: 20";
  const ProcessResult held =
      in_shell("trap '' HUP; exec \"$0\" \"$@\"", "pretrain", tiny_pretrain(stories, "held", 20), options);
  CHECK(held.exit_code == 0);
}

TEST_CASE("interruptions: with nobody left to read its messages a run goes on to its end") {
  const PreparedStories stories;
  REQUIRE(run_process(binary("pretrain"), tiny_pretrain(stories, "whole", 20)).exit_code == 0);
  const std::string wanted = state_of(stories.path("whole"), 20);
  const std::string code = stories.path("code");
  in_shell(fmt::format("{{ \"$0\" \"$@\" 2>&1 >/dev/null; echo $? >'{}'; }} | true", code), "pretrain",
           tiny_pretrain(stories, "unread", 20));
  CHECK(read_file(code) == "0\n");
  CHECK(state_of(stories.path("unread"), 20) == wanted);
  CHECK(in_shell("exec \"$0\" \"$@\" 2>&-", "pretrain", tiny_pretrain(stories, "closed", 20)).exit_code == 0);
  CHECK(state_of(stories.path("closed"), 20) == wanted);
  // Results that nobody gets are a failure, but the run is done and in its folder.
  CHECK(in_shell("exec \"$0\" \"$@\" >&-", "pretrain", tiny_pretrain(stories, "mute", 20)).exit_code == 1);
  CHECK(state_of(stories.path("mute"), 20) == wanted);
  CHECK(fs::exists(stories.path("mute/summary.json")));
}

TEST_CASE("interruptions: a second process in a run's folder is refused while the first trains") {
  const PreparedStories stories;
  const FolderLock other = prepare_run_folder(stories.path("run"), OutputUse::refuse);
  for (const char* flag : {"--quiet", "--resume", "--overwrite"}) {
    CAPTURE(flag);
    Arguments arguments = tiny_pretrain(stories, "run", 20);
    arguments.push_back(flag);
    const ProcessResult result = run_process(binary("pretrain"), arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(fmt::format("is being written by process {} already", getpid())) != std::string::npos);
  }
}

TEST_CASE("interruptions: a disk that fills up leaves nothing half done, and the message says where") {
  const PreparedStories stories;
  Arguments tapered = tiny_pretrain(stories, "run", 20);
  tapered.insert(tapered.end(), {"--variant", "all"});
  REQUIRE(run_process(binary("pretrain"), tapered).exit_code == 0);
  const std::string full = "ulimit -f 2; exec \"$0\" \"$@\"";
  const Arguments train = {"train", "--input", stories.path("stories.txt"), "--vocab-size", "400", "--output"};
  const std::pair<const char*, Arguments> calls[] = {
      {"fold", {"--model", stories.path("run"), "--output"}},
      {"convert", {"--model", stories.path("run"), "--to", "taper", "--output"}},
      {"tokenizer", train}};
  for (const auto& call : calls) {
    const char* program = call.first;
    const Arguments& arguments = call.second;
    CAPTURE(program);
    Arguments all = arguments;
    all.push_back(stories.path("new/output"));
    const ProcessResult result = in_shell(full, program, all);
    CHECK(result.exit_code == 1);
    CAPTURE(result.err);
    CHECK(result.err.find("File too large") != std::string::npos);
    CHECK_FALSE(fs::exists(stories.path("new")));
  }
  Arguments again = train;
  again.push_back(stories.path("tokenizer"));
  const std::string before = read_file(stories.path("tokenizer/tokenizer.json"));
  CHECK(run_process(binary("tokenizer"), again).exit_code == 2);
  CHECK(read_file(stories.path("tokenizer/tokenizer.json")) == before);
}
