#include "engine/io/staged_output.h"

#include <system_error>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"

namespace taper {

namespace fs = std::filesystem;

StagedOutput::StagedOutput(const fs::path& place) {
  require_usage(!place.empty(), "--output: is empty; want a name");
  place_ = fs::absolute(place).lexically_normal();
  if (!place_.has_filename()) place_ = place_.parent_path();
  require_free();
  const fs::path above = place_.parent_path();
  staging_ = above / (place_.filename().string() + ".partial");
  path_ = staging_ / place_.filename();
  for (fs::path folder = above; !fs::exists(folder); folder = folder.parent_path()) made_ = folder;
  try {
    std::error_code error;
    fs::create_directories(above, error);
    require(fs::is_directory(above), "{}: cannot make this folder: {}", above.string(), error.message());
    take_staging();
  } catch (...) {
    remove();
    throw;
  }
}

StagedOutput::~StagedOutput() { remove(); }

void StagedOutput::require_free() const {
  std::error_code error;
  const bool is_free = !fs::exists(place_) || (fs::is_directory(place_, error) && fs::is_empty(place_, error));
  require_usage(is_free, "--output: {} is there already; want a new name or an empty folder", place_.string());
}

// One name for all calls, so that what a killed one left goes with the next.
void StagedOutput::take_staging() {
  const fs::file_type type = fs::symlink_status(staging_).type();
  bool is_ours = type == fs::file_type::directory || type == fs::file_type::not_found;
  if (type == fs::file_type::directory) {
    for (const fs::directory_entry& entry : fs::directory_iterator(staging_)) {
      const std::string name = entry.path().filename().string();
      is_ours = is_ours && (name == kLockFile || name.starts_with(place_.filename().string()));
    }
  }
  require_usage(is_ours,
                "--output: {} is in the way, and was not left by an earlier call; move it, or want another name",
                staging_.string());
  lock_.emplace(staging_);
  // Another call may have written it just now.
  require_free();
  fs::remove_all(path_);
}

void StagedOutput::remove() noexcept {
  std::error_code ignored;
  if (lock_) fs::remove_all(staging_, ignored);
  lock_.reset();
  if (made_.empty()) return;
  // Those that were made are empty again; others refuse to go.
  for (fs::path above = place_.parent_path();; above = above.parent_path()) {
    fs::remove(above, ignored);
    if (above == made_) return;
  }
}

void StagedOutput::make_folder() const {
  std::error_code error;
  fs::create_directories(path_, error);
  require(!error, "{}: cannot make this folder: {}", path_.string(), error.message());
}

void StagedOutput::commit() {
  std::error_code error;
  const bool is_folder = fs::is_directory(path_, error);
  if (is_folder) sync_folder(path_);
  if (!is_folder && fs::is_directory(place_, error)) fs::remove(place_, error);
  fs::rename(path_, place_, error);
  require(!error, "{}: cannot be put in its place: {}", place_.string(), error.message());
  made_.clear();
  remove();
  sync_folder(place_.parent_path());
}

}  // namespace taper
