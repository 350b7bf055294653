#include "engine/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/core/error.h"

namespace taper {
namespace {

// Closes the descriptor, and until released removes the file: an exception leaves nothing behind.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path)
      : path_(std::move(path)), descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!path_.empty()) unlink(path_.c_str());
  }

  bool is_open() const { return descriptor_ >= 0; }
  bool write_all(std::string_view content) {
    while (!content.empty()) {
      const ssize_t n = write(descriptor_, content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      content.remove_prefix(static_cast<std::size_t>(n));
    }
    return fsync(descriptor_) == 0;
  }
  bool rename_to(const std::string& path) {
    if (rename(path_.c_str(), path.c_str()) != 0) return false;
    path_.clear();
    return true;
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(descriptor >= 0, "{}: cannot open: {}", path.string(), std::strerror(errno));
  struct Closer {
    int descriptor;
    ~Closer() { close(descriptor); }
  } const closer{descriptor};
  struct stat status {};
  require(fstat(descriptor, &status) == 0, "{}: cannot read: {}", path.string(), std::strerror(errno));
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

void write_file(const std::filesystem::path& path, std::string_view content) {
  // Of one folder, so that the rename is atomic; of one process, so that two writers do not share it.
  TemporaryFile file(fmt::format("{}.tmp-{}", path.string(), getpid()));
  require(file.is_open() && file.write_all(content) && file.rename_to(path.string()), "{}: cannot write {} bytes: {}",
          path.string(), content.size(), std::strerror(errno));
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    // Not every file system can sync a folder; the file itself is complete either way.
    fsync(descriptor);
    close(descriptor);
  }
}

}  // namespace taper
