#include "engine/io/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace taper {

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require_usage(descriptor >= 0 || errno != ENOENT, "{}: no such file", path.string());
  require(descriptor >= 0, "{}: cannot open: {}", path.string(), std::strerror(errno));
  struct Closer {
    int descriptor;
    ~Closer() { close(descriptor); }
  } const closer{descriptor};
  struct stat status {};
  const bool has_status = fstat(descriptor, &status) == 0;
  require(has_status, "{}: cannot read: {}", path.string(), std::strerror(errno));
  require(S_ISREG(status.st_mode), "{}: not a regular file", path.string());
  const auto size = static_cast<std::uint64_t>(status.st_size);
  require(size <= max_bytes, "{}: too large; got {} bytes, want at most {}", path.string(), size, max_bytes);
  std::string content(size, '\0');
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n = read(descriptor, content.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot read at byte {}: {}", path.string(), done, std::strerror(errno));
    require(n > 0, "{}: became shorter while it was read; got {} bytes, want {}", path.string(), done, size);
    done += static_cast<std::uint64_t>(n);
  }
  return content;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

}  // namespace taper
