#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>

#include "engine/core/error.h"
#include "engine/io/folder_lock.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"

using namespace taper;
using namespace taper::test;

TEST_CASE("folder lock: a second one is refused and told who holds it; it goes with its holder") {
  const TempDir folder;
  {
    FolderLock first(folder.path());
    CHECK_THROWS_WITH_AS(FolderLock{folder.path()},
                         doctest::Contains(("by process " + std::to_string(getpid()) + " already").c_str()),
                         UsageError);
    const FolderLock moved(std::move(first));
    CHECK_THROWS_AS(FolderLock{folder.path()}, UsageError);
  }
  const FolderLock again(folder.path());
}

TEST_CASE("folder lock: a killed holder leaves nothing behind") {
  const TempDir folder;
  const ProcessResult killed = run_function([&] {
    const FolderLock lock(folder.path());
    return raise(SIGKILL);
  });
  CHECK(killed.exit_code == 128 + SIGKILL);
  const FolderLock lock(folder.path());
}

TEST_CASE("folder lock: makes the folder; one that cannot be made is refused") {
  const TempDir folder;
  const FolderLock lock(folder / "new/folder");
  CHECK_THROWS_AS(FolderLock{folder / "new/folder"}, UsageError);
  folder.write("file", "");
  CHECK_THROWS_WITH_AS(FolderLock{folder / "file"}, doctest::Contains("cannot be made: "), UsageError);
  CHECK_THROWS_WITH_AS(FolderLock{folder / "file/new"}, doctest::Contains("cannot be made: Not a dir"), UsageError);
}
