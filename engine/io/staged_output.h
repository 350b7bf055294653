// A folder of several files, or one file, that appears whole or not at all: written in a locked folder PLACE.partial
// beside its place, synced and renamed.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/io/folder_lock.h"

namespace taper {

class StagedOutput {
 public:
  // UsageError where the place holds something already that is no empty folder, where another process is writing it,
  // and where PLACE.partial is there and is not what a killed call left; Error where the folder above cannot be made.
  explicit StagedOutput(const std::filesystem::path& place);
  ~StagedOutput();  // without commit(): nothing is left behind, folders made above included
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;

  const std::filesystem::path& path() const { return path_; }  // where to write until then
  void make_folder() const;                                    // at path(), for outputs that are folders
  void commit();

 private:
  void require_free() const;
  void take_staging();
  void remove() noexcept;

  std::filesystem::path place_, staging_, path_;
  std::optional<FolderLock> lock_;  // of staging_: what is there is ours
  std::filesystem::path made_;      // the first of the folders above that was not there; empty: all were
};

}  // namespace taper
