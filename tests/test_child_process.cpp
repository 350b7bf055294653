#include <doctest/doctest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tools/common/child_process.h"

using namespace taper;
using namespace taper::test;

namespace {

// What the shell says of a script, and its exit code; -1 where poll() has not told it after ten seconds.
struct Shell {
  explicit Shell(const std::string& script) : child("/bin/sh", {"-c", script}, folder / "out", folder / "err") {}

  int code() {
    for (int i = 0; i < 1000; ++i) {
      if (const auto code = child.poll()) return *code;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }
  std::string out() const { return read_file(folder / "out"); }

  TempDir folder;
  ChildProcess child;
};

}  // namespace

TEST_CASE("child process: its exit code, or the signal that ended it") {
  CHECK(Shell("exit 3").code() == 3);
  CHECK(Shell("kill -9 $$").code() == 128 + 9);
  Shell asked("echo on; exec sleep 60");
  while (asked.out().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  asked.child.send(SIGTERM);
  CHECK(asked.code() == 128 + SIGTERM);
}

TEST_CASE("child process: the end is learnt where SIGCHLD was ignored, and told where somebody else waited") {
  std::signal(SIGCHLD, SIG_IGN);
  CHECK(Shell("exit 3").code() == 3);
  std::signal(SIGCHLD, SIG_DFL);
  Shell lost("exit 3");
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  CHECK(lost.code() == 255);
}
