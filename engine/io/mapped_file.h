// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>

namespace taper {

class MappedFile {
 public:
  MappedFile() = default;
  // UsageError that names the whole path where it cannot be opened or is no regular file, Error where it cannot be
  // mapped. An empty file is no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Whole pages within bytes [begin, end) leave the process's memory; reading them again brings them back from the
  // file.
  void release(size_t begin, size_t end) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace taper
