#include "tools/common/messages.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/core/error.h"

namespace taper {
namespace {

bool messages_are_silent = false;

}  // namespace

void write_result(std::string_view bytes) {
  const bool is_written =
      std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0;
  if (is_written) return;
  const int error = errno;
  // What could not be written is not tried again at exit.
  std::clearerr(stdout);
  fail("stdout: cannot be written: {}", std::strerror(error));
}

void print_message(std::string_view line) {
  if (!messages_are_silent) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void silence_messages(bool is_quiet) { messages_are_silent = is_quiet; }

}  // namespace taper
