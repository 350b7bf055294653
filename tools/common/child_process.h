// A program of this build, run beside this one.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace taper {

// The path of a program that stands beside the running one; its bare name, to be found in PATH, where there is none.
std::string sibling_program(const std::string& name);

// Its output goes to files, added at their ends. It has a process group of its own, so that Ctrl-C reaches it once,
// from here, and it is asked to stop (SIGTERM) should this process die.
class ChildProcess {
 public:
  // Error where it cannot be started.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
               const std::filesystem::path& out_file, const std::filesystem::path& err_file);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // one that still runs is asked to stop, and waited for

  // The exit code once it has ended; 128 and the signal's number where one ended it, 255 where that cannot be learnt.
  std::optional<int> poll();
  void send(int signal);

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
};

}  // namespace taper
