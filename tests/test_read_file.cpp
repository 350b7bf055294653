#include <doctest/doctest.h>

#include <string>

#include "engine/core/error.h"
#include "engine/io/read_file.h"
#include "tests/support/temp_dir.h"

using namespace taper;

TEST_CASE("read file: all bytes of it, up to the bound") {
  const test::TempDir folder;
  const std::string bytes("a\0\r\n\xFF", 5);
  CHECK(taper::read_file(folder.write("some", bytes), 5) == bytes);
  CHECK(taper::read_file(folder.write("none", ""), 0).empty());
  CHECK_THROWS_WITH_AS(taper::read_file(folder / "some", 4),
                       doctest::Contains("too large; got 5 bytes, want at most 4"), Error);
}

TEST_CASE("read file: what is no file is an error that names it") {
  const test::TempDir folder;
  CHECK_THROWS_WITH_AS(taper::read_file(folder / "missing", 9), doctest::Contains("missing: no such file"), UsageError);
  CHECK_THROWS_WITH_AS(taper::read_file(folder.path(), 9), doctest::Contains("not a regular file"), Error);
  CHECK_THROWS_WITH_AS(taper::read_file("/dev/zero", 9), doctest::Contains("not a regular file"), Error);
}
