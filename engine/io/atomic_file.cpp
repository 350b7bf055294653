#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>

#include "engine/core/error.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".partial-";

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Past a limit on file sizes the system sends a signal that ends the program; ignored, the write fails and says so.
void ignore_file_size_signal() {
  struct sigaction action = {};
  if (sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, nullptr);
}

// A living writer holds a lock on its temporary, which the system drops with the process.
void remove_if_stale(const fs::path& temporary) {
  const int descriptor = ::open(temporary.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(temporary.c_str());
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  ignore_file_size_signal();
  std::error_code error;
  // A link stays a link: what it points at is replaced.
  if (const fs::path target = fs::canonical(path, error); !error) path_ = target;
  const fs::file_status status = fs::status(path_, error);
  require(!fs::exists(status) || fs::is_regular_file(status), "{}: cannot be written: it exists and is no regular file",
          path_.string());
  remove_stale_temporaries(folder_of(path_));
  open_temporary();
}

void AtomicFile::open_temporary() {
  static std::atomic<int> count{0};
  for (;;) {
    temporary_ = path_;
    temporary_ += kMark + std::to_string(::getpid()) + "-" + std::to_string(count++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    require(descriptor_ >= 0, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
    // Before the lock is held another writer may take the file for a stale one and remove it. Where the file system
    // knows no locks nobody can.
    struct stat info = {};
    ::flock(descriptor_, LOCK_EX);
    if (::fstat(descriptor_, &info) != 0 || info.st_nlink > 0) return;
    ::close(descriptor_);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  constexpr size_t kMost = size_t{1} << 30;  // the system writes less than 2 GiB at a time
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(descriptor_, next, std::min(bytes, kMost));
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "{}: cannot be written: {} bytes more after {} bytes: {}", path_.string(), bytes, written_,
            count < 0 ? std::strerror(errno) : "the system took none");
    next += count;
    bytes -= static_cast<size_t>(count);
    written_ += count;
  }
}

void AtomicFile::rewrite_start(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = ::pwrite(descriptor_, next + done, bytes - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "{}: cannot be written: the first {} of {} bytes: {}", path_.string(), bytes, written_,
            count < 0 ? std::strerror(errno) : "the system took none");
    done += static_cast<size_t>(count);
  }
}

void AtomicFile::commit() {
  // The system's reason is read after the call: arguments are evaluated in any order.
  const bool is_on_disk = ::fsync(descriptor_) == 0;
  require(is_on_disk, "{}: cannot be written: {} bytes do not reach the disk: {}", path_.string(), written_,
          std::strerror(errno));
  const bool is_renamed = ::rename(temporary_.c_str(), path_.c_str()) == 0;
  require(is_renamed, "{}: cannot be replaced by its new {} bytes: {}", path_.string(), written_, std::strerror(errno));
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));
}

void write_file(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

void remove_stale_temporaries(const fs::path& folder) noexcept {
  try {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().filename().string().find(kMark) != std::string::npos) remove_if_stale(entry->path());
    }
  } catch (const std::exception&) {
    return;
  }
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, "{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  const bool has_failed = ::fsync(descriptor) != 0;
  const int reason = errno;
  ::close(descriptor);
  // Some file systems know no sync of folders.
  require(!has_failed || reason == EINVAL || reason == ENOTSUP, "{}: cannot be synced: {}", folder.string(),
          std::strerror(reason));
}

}  // namespace taper
