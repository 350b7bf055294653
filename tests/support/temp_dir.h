// A folder of its own for a test, gone with the object.
#pragma once

#include <filesystem>
#include <string>

namespace taper::test {

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& above = std::filesystem::temp_directory_path());
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& relative) const { return path_ / relative; }

  // Writes a file of these bytes and returns its path.
  std::filesystem::path write(const std::filesystem::path& relative, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

// All bytes of a file; throws taper::Error where it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace taper::test
