#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

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
  const std::filesystem::path path = input_path(name);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool is_written = file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (file >= 0) close(file);
  expect(is_written, "room for the input");
  return path;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  abort();
}

}  // namespace taper::fuzz
