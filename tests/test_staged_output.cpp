#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>

#include "engine/core/error.h"
#include "engine/io/staged_output.h"
#include "tests/support/faults.h"
#include "tests/support/run_process.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;

TEST_CASE("staged output: appears on commit, with the folders above it") {
  const TempDir folder;
  StagedOutput output(folder / "a/b/model");
  output.make_folder();
  folder.write(fs::relative(output.path(), folder.path()) / "file", "bytes");
  CHECK_FALSE(fs::exists(folder / "a/b/model"));
  output.commit();
  CHECK(read_file(folder / "a/b/model/file") == "bytes");
  CHECK(std::distance(fs::directory_iterator(folder / "a/b"), {}) == 1);
}

TEST_CASE("staged output: without commit nothing is left, but for what was there") {
  if (!kFaultsStrike) SKIP_TEST("a sanitizer holds the calls that faults replace");
  const TempDir folder;
  fs::create_directories(folder / "a");
  {
    const StagedOutput output(folder / "a/b/c/model");
    output.make_folder();
  }
  CHECK(fs::is_empty(folder / "a"));
  {
    PlantedFault fault({Call::make_folder, ENOSPC}, 2);
    CHECK_THROWS_WITH_AS(StagedOutput{folder / "a/b/c/model"}, doctest::Contains("No space left"), Error);
  }
  CHECK(fs::is_empty(folder / "a"));
}

TEST_CASE("staged output: a place in use is refused, an empty folder taken") {
  const TempDir folder;
  folder.write("used/file", "");
  CHECK_THROWS_WITH_AS(StagedOutput{folder / "used"}, doctest::Contains("is there already"), UsageError);
  CHECK_FALSE(fs::exists(folder / "used.partial"));
  fs::create_directories(folder / "empty");
  StagedOutput output(folder / "empty/");
  output.make_folder();
  output.commit();
  CHECK(fs::is_directory(folder / "empty"));
  CHECK_FALSE(fs::exists(folder / "empty.partial"));
}

TEST_CASE("staged output: one call at a time, and what a killed one left goes with the next") {
  const TempDir folder;
  const ProcessResult killed = run_function([&] {
    const StagedOutput output(folder / "model");
    output.make_folder();
    folder.write(fs::relative(output.path(), folder.path()) / "half", "");
    return raise(SIGKILL);
  });
  CHECK(killed.exit_code == 128 + SIGKILL);
  CHECK_FALSE(fs::is_empty(folder / "model.partial"));
  StagedOutput output(folder / "model");
  output.make_folder();
  CHECK(fs::is_empty(output.path()));
  folder.write(fs::relative(output.path(), folder.path()) / "file", "bytes");
  CHECK_THROWS_WITH_AS(StagedOutput{folder / "model"}, doctest::Contains("is being written by process"), UsageError);
  CHECK(read_file(output.path() / "file") == "bytes");
  output.commit();
  CHECK(read_file(folder / "model/file") == "bytes");
  CHECK_FALSE(fs::exists(folder / "model.partial"));
}

TEST_CASE("staged output: what others have under its temporary name stays") {
  const TempDir folder;
  const FolderLock run(folder / "c.partial");
  for (const char* file : {"a.partial/notes", "b.partial", "c.partial/metrics.jsonl"}) {
    CAPTURE(file);
    folder.write(file, "mine");
    const fs::path place = folder / std::string(file, 1);
    CHECK_THROWS_WITH_AS(StagedOutput{place}, doctest::Contains("is in the way"), UsageError);
    CHECK(read_file(folder / file) == "mine");
    CHECK_FALSE(fs::exists(place));
  }
}
