// Files that are there whole or not at all: written under a temporary name beside their place, synced to the disk and
// renamed. A writer that dies leaves the old file as it was, and a temporary that the next writer in the folder
// removes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace taper {

// Errors name the path, the bytes that could not be written, and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  // without commit(): the temporary goes, the old file stays
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // Replaces the first bytes of what was written: a header that states what came after it.
  void rewrite_start(const void* data, size_t bytes);
  void commit();  // from here on the new file stands under its name, also after a power cut

 private:
  void open_temporary();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int64_t written_ = 0;
};

void write_file(const std::filesystem::path& path, std::string_view bytes);

// Removes what writers that are no longer alive have left in a folder. Never throws: nothing depends on it.
void remove_stale_temporaries(const std::filesystem::path& folder) noexcept;

// Makes renames and new names inside a folder survive a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace taper
