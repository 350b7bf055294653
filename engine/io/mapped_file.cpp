#include "engine/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/core/error.h"

namespace taper {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  ~FileDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Without O_NONBLOCK a named pipe would wait here for somebody to write to it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  const bool is_open = file.value() >= 0 && ::fstat(file.value(), &info) == 0;
  const int open_error = errno;
  std::error_code ignored;
  const std::string name = std::filesystem::absolute(path, ignored).string();
  require_usage(is_open, "{}: cannot be opened: {}", name, std::strerror(open_error));
  require_usage(S_ISREG(info.st_mode), "{}: is no regular file", name);
  if (info.st_size == 0) return;
  void* memory = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.value(), 0);
  require(memory != MAP_FAILED, "{}: cannot be mapped into memory: {}", name, std::strerror(errno));
  data_ = static_cast<std::byte*>(memory);
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release(size_t begin, size_t end) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace taper
