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
  std::error_code error;
  const bool is_free = !fs::exists(place_) || (fs::is_directory(place_, error) && fs::is_empty(place_, error));
  require_usage(is_free, "--output: {} is there already; want a new name or an empty folder", place_.string());
  // One name for all calls, so that what a killed one left goes with the next.
  path_ = place_.parent_path() / (place_.filename().string() + ".partial");
  fs::remove_all(path_, error);
  for (fs::path above = place_.parent_path(); !fs::exists(above); above = above.parent_path()) made_ = above;
  fs::create_directories(place_.parent_path(), error);
  if (fs::is_directory(place_.parent_path())) return;
  remove();
  fail("{}: cannot make this folder: {}", place_.parent_path().string(), error.message());
}

StagedOutput::~StagedOutput() { remove(); }

void StagedOutput::remove() noexcept {
  std::error_code ignored;
  if (path_.empty()) return;
  fs::remove_all(path_, ignored);
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
  path_.clear();
  sync_folder(place_.parent_path());
}

}  // namespace taper
