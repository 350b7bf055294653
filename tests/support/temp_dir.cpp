#include "tests/support/temp_dir.h"

#include <stdlib.h>

#include <fstream>
#include <iterator>

#include "engine/core/error.h"

namespace taper::test {

TempDir::TempDir(const std::filesystem::path& above) {
  std::string pattern = (above / "taper-test-XXXXXX").string();
  require(mkdtemp(pattern.data()) != nullptr, "{}: cannot make a folder for the test", pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TempDir::write(const std::filesystem::path& relative, const std::string& bytes) const {
  const std::filesystem::path file = path_ / relative;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "{}: cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace taper::test
