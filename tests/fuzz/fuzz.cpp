#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "tests/support/temp_dir.h"

namespace taper::fuzz {

std::filesystem::path input_path(const std::string& name) {
  // In memory where the system has such a place: each input is written once and read once.
  static const std::filesystem::path memory = "/dev/shm";
  static const test::TempDir folder(std::filesystem::is_directory(memory) ? memory
                                                                          : std::filesystem::temp_directory_path());
  return folder / name;
}

std::filesystem::path write_input(const std::string& name, std::string_view bytes) {
  // Open for good, and written over: making a file anew for each input would take longer than reading it.
  static std::map<std::string, int> descriptors;
  const std::filesystem::path path = input_path(name);
  const auto [found, is_new] = descriptors.emplace(name, -1);
  if (is_new) found->second = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int file = found->second;
  const bool is_written = file >= 0 &&
                          pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
                          ftruncate(file, static_cast<off_t>(bytes.size())) == 0;
  expect(is_written, "room for the input");
  return path;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  abort();
}

}  // namespace taper::fuzz
