// One writer in a folder at a time: a lock on FOLDER/.lock, which the system drops with the process, so that nothing is
// stale after a crash. Children that are started meanwhile share it.
#pragma once

#include <filesystem>
#include <utility>

namespace taper {

inline constexpr const char* kLockFile = ".lock";

class FolderLock {
 public:
  // Makes the folder where it is not there. UsageError where it cannot be made or written, or another process holds the
  // lock, naming it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace taper
