#include "tests/support/run_process.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "engine/core/error.h"

namespace taper::test {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    // Close-on-exec, so that a child never holds another child's pipe open.
    require(pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

constexpr int kExitNotStarted = 127;

[[noreturn]] void become(const std::function<int()>& function, const ProcessOptions& options, const Pipe& in,
                         const Pipe& out, const Pipe& err) {
  dup2(in.read_end, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(kExitNotStarted);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  const int code = function();
  std::fflush(stdout);
  _exit(code);
}

int execute(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(program.c_str(), argv.data());
  return kExitNotStarted;
}

// Reads what is there; closes the end at the end of the stream.
void drain(int& end, std::string& text) {
  char buffer[4096];
  const ssize_t count = read(end, buffer, sizeof buffer);
  if (count > 0) {
    text.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    Pipe::close_end(end);
  }
}

// Moves bytes until the child has closed both of its outputs or the time is over; false then.
bool communicate(pid_t child, const ProcessOptions& options, Pipe& in, Pipe& out, Pipe& err, ProcessResult& result) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(options.timeout_s);
  size_t written = 0;
  bool is_signalled = options.signal == 0;
  while (out.read_end >= 0 || err.read_end >= 0) {
    if (written == options.input.size()) Pipe::close_end(in.write_end);
    const double left_ms = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
    if (left_ms <= 0) return false;
    // A negative descriptor is one poll passes over.
    pollfd ends[3] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}, {in.write_end, POLLOUT, 0}};
    if (poll(ends, 3, static_cast<int>(left_ms) + 1) < 0 && errno != EINTR) return false;
    if (ends[0].revents != 0) drain(out.read_end, result.out);
    if (ends[1].revents != 0) drain(err.read_end, result.err);
    if (ends[2].revents != 0) {
      const ssize_t count = write(in.write_end, options.input.data() + written, options.input.size() - written);
      written = count > 0 ? written + static_cast<size_t>(count) : options.input.size();
    }
    if (!is_signalled && (result.err.find(options.signal_after) != std::string::npos ||
                          result.out.find(options.signal_after) != std::string::npos)) {
      kill(child, options.signal);
      is_signalled = true;
    }
  }
  return true;
}

}  // namespace

std::string binary(const std::string& name) {
  const char* folder = std::getenv("TAPER_BIN");
  return std::string(folder != nullptr ? folder : "build/bin") + "/" + name;
}

ProcessResult run_function(const std::function<int()>& function, const ProcessOptions& options) {
  Pipe in, out, err;
  std::signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);
  const pid_t child = fork();
  require(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) become(function, options, in, out, err);
  Pipe::close_end(in.read_end);
  Pipe::close_end(out.write_end);
  Pipe::close_end(err.write_end);
  fcntl(in.write_end, F_SETFL, O_NONBLOCK);

  ProcessResult result;
  result.timed_out = !communicate(child, options, in, out, err, result);
  if (result.timed_out) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
  ProcessResult result = run_function([&] { return execute(program, arguments); }, options);
  require(result.exit_code != kExitNotStarted, "{}: cannot be started", program);
  return result;
}

}  // namespace taper::test
