#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using test::read_file;

namespace {

int files_in(const std::filesystem::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

std::string error_of(const std::filesystem::path& path, const std::string& bytes) {
  try {
    write_file(path, bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("atomic file: appears on commit, replaces the old one, leaves nothing beside it") {
  const test::TempDir folder;
  const auto path = folder / "a.bin";
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(!std::filesystem::exists(path));
    file.commit();
  }
  CHECK(read_file(path) == "new");
  write_file(path, "");
  CHECK(read_file(path).empty());
  {
    AtomicFile file(path);
    file.write("given up", 8);
  }
  CHECK(read_file(path).empty());
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("atomic file: a link keeps pointing where it did") {
  const test::TempDir folder;
  folder.write("target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write_file(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "target") == "new");
}

TEST_CASE("atomic file: errors name the path and the reason") {
  const test::TempDir folder;
  CHECK(contains(error_of(folder / "missing/a", "x"), "missing/a: cannot be written: No such file or directory"));
  std::filesystem::create_directory(folder / "b");
  CHECK(contains(error_of(folder / "b", "x"), "no regular file"));
  CHECK(contains(error_of("/dev/null", "x"), "no regular file"));
}

TEST_CASE("atomic file: past a limit on file sizes the old file stays and the bytes are named") {
  const test::TempDir folder;
  const auto path = folder.write("a.bin", "old");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = error_of(path, std::string(10000, 'x'));
    _exit(contains(error, "a.bin: cannot be written: 5904 bytes more after 4096 bytes: File too large") ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(read_file(path) == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("atomic file: what a killed writer left goes with the next write, what a living one writes stays") {
  const test::TempDir folder;
  const auto path = folder.write("a.bin", "old");
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("half", 4);
    if (::write(channel[1], "r", 1) != 1) _exit(1);
    pause();
    _exit(1);
  }
  char ready = 0;
  REQUIRE(::read(channel[0], &ready, 1) == 1);
  write_file(folder / "b.bin", "b");
  CHECK(files_in(folder.path()) == 3);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(read_file(path) == "old");
  CHECK(files_in(folder.path()) == 3);
  write_file(folder / "b.bin", "c");
  CHECK(files_in(folder.path()) == 2);
  close(channel[0]);
  close(channel[1]);
}
