// Runs one of the project's programs, or any other, as a user would.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace taper::test {

struct ProcessOptions {
  std::string input;                                             // what it reads on stdin
  std::vector<std::pair<std::string, std::string>> environment;  // set besides the test's own
  std::string folder;                                            // working folder; empty: the test's own
  double timeout_s = 60;                                         // killed after that
  int signal = 0;  // sent once signal_after has appeared on stderr or stdout
  std::string signal_after;
};

struct ProcessResult {
  int exit_code = -1;  // 128 + the signal's number where one ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

// The path of one of the project's binaries: $TAPER_BIN (make test sets it), by default build/bin.
std::string binary(const std::string& name);

// Throws taper::Error where the program cannot be started.
ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});

// The same for a function, in a child process; its result is the exit code. Not for code that uses threads.
ProcessResult run_function(const std::function<int()>& function, const ProcessOptions& options = {});

}  // namespace taper::test
