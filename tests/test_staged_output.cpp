#include <doctest/doctest.h>

#include <cerrno>

#include "engine/core/error.h"
#include "engine/io/staged_output.h"
#include "tests/support/faults.h"
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

TEST_CASE("staged output: a place in use is refused, an empty folder taken, a killed call's rest removed") {
  const TempDir folder;
  folder.write("used/file", "");
  CHECK_THROWS_WITH_AS(StagedOutput{folder / "used"}, doctest::Contains("is there already"), UsageError);
  fs::create_directories(folder / "empty");
  folder.write("empty.partial/rest", "");
  StagedOutput output(folder / "empty/");
  output.make_folder();
  CHECK(fs::is_empty(output.path()));
  output.commit();
  CHECK(fs::is_directory(folder / "empty"));
  CHECK_FALSE(fs::exists(folder / "empty.partial"));
}
