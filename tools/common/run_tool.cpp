#include "tools/common/run_tool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>

#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/core/profile.h"
#include "tools/common/machine_limits.h"

namespace taper {
namespace {

// A failure is one readable line, whatever names and values it quotes.
std::string as_one_line(std::string_view text) {
  constexpr size_t kMost = 2000;
  std::string line;
  for (const char c : text.substr(0, kMost)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    line += is_control ? fmt::format("\\x{:02X}", c) : std::string(1, c);
  }
  return text.size() > kMost ? line + "..." : line;
}

void report(const std::string& name, std::string_view text) {
  // A library's function may name itself as its program does.
  if (text.starts_with(name + ": ")) text.remove_prefix(name.size() + 2);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", name.c_str(), as_one_line(text).c_str());
}

// A file opened later must not land on a standard stream that was closed at the start. The substitute for stdout
// refuses to be written to, so that lost results are noticed.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_closed = fcntl(stream, F_GETFD) < 0 && errno == EBADF;
    if (is_closed) static_cast<void>(open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

int64_t bytes_read_over_and_over = 0;  // 0: the program does not say

// The limits measured are the processor's.
void report_profile() {
  if (!is_profiling()) return;
  stop_profile();
  if (memory_use(Device::cuda).peak_bytes > 0) return print_message(profile_report());
  if (bytes_read_over_and_over == 0) return print_message(profile_report(measure_machine_limits()));
  print_message(profile_report(measure_machine_limits(bytes_read_over_and_over)) +
                fmt::format("reading measured on the {:.1f} MB of a token's matrices, over and over",
                            static_cast<double>(bytes_read_over_and_over) * 1e-6));
}

int finish(int code) {
  report_profile();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail("stdout: cannot be written: {}", std::strerror(errno));
  return code == 0 && stop_requested() ? kExitStopped : code;
}

int run_body(const std::string& name, const std::function<int()>& body) {
  try {
    return finish(body());
  } catch (const Exit& exit) {
    return exit.code;
  } catch (const Stopped&) {
    return kExitStopped;
  } catch (const UsageError& error) {
    report(name, error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    report(name, "out of memory; a smaller input, batch, context or model needs less");
  } catch (const std::filesystem::filesystem_error& error) {
    report(name, fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::exception& error) {
    report(name, error.what());
  }
  return 1;
}

}  // namespace

void limit_profile_by_reading(int64_t bytes) { bytes_read_over_and_over = bytes; }

int run_tool(int argc, char** argv, const std::function<int()>& body) {
  limit_spinning(argv);
  occupy_closed_streams();
  // A reader that went away and a limit on file sizes are errors like any other, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  install_stop_signals();
  const std::string path = argc > 0 ? argv[0] : "taper";
  return run_body(path.substr(path.find_last_of('/') + 1), body);
}

}  // namespace taper
