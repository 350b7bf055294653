#include "tools/common/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "engine/core/error.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr int kExitNotStarted = 127;
constexpr int kExitUnknown = 255;

int open_log(const fs::path& file) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  require(descriptor >= 0, "{}: cannot be written: {}", file.string(), std::strerror(errno));
  return descriptor;
}

[[noreturn]] void become(const char* program, char* const* argv, int out, int err, pid_t parent) {
  setpgid(0, 0);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitNotStarted);
#else
  static_cast<void>(parent);
#endif
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(program, argv);
  _exit(kExitNotStarted);
}

}  // namespace

std::string sibling_program(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path sibling = self.parent_path() / name;
  return !error && fs::exists(sibling, error) ? sibling.string() : name;
}

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
                           const fs::path& out_file, const fs::path& err_file) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int out = open_log(out_file), err = open_log(err_file);
  // Where this process was started with the signal ignored, the system would keep no exit codes for it.
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t parent = getpid();
  pid_ = fork();
  const int error = errno;
  if (pid_ == 0) become(program.c_str(), argv.data(), out, err, parent);
  close(out);
  close(err);
  require(pid_ > 0, "{}: cannot be started: {}", program, std::strerror(error));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), code_(other.code_) { other.pid_ = -1; }

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || code_) return;
  send(SIGTERM);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> ChildProcess::poll() {
  if (code_) return code_;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == pid_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // It is no child any more: somebody else has waited for it.
  if (ended < 0 && errno == ECHILD) code_ = kExitUnknown;
  return code_;
}

void ChildProcess::send(int signal) {
  if (pid_ > 0 && !code_) kill(pid_, signal);
}

}  // namespace taper
