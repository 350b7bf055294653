#include "engine/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "engine/core/error.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

// Who holds it, as the holder wrote it down.
std::string holder_of(int descriptor) {
  char text[32] = {};
  const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
  const std::string digits(text, count > 0 ? static_cast<size_t>(count) : 0);
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "process " + digits : "another process";
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require_usage(fs::is_directory(folder), "output: {} cannot be made: {}", folder.string(),
                error ? error.message() : "it is a file");
  const fs::path file = folder / kLockFile;
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
  require_usage(descriptor_ >= 0, "output: {} cannot be written: {}", folder.string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string holder = holder_of(descriptor_);
    ::close(descriptor_);
    fail_usage("output: {} is being written by {} already; wait for it or stop it", folder.string(), holder);
  }
  // Where the file system knows no locks, or has no room for the number, the work goes on without.
  const std::string own = std::to_string(::getpid());
  if (::ftruncate(descriptor_, 0) == 0) static_cast<void>(::pwrite(descriptor_, own.data(), own.size(), 0) < 0);
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace taper
