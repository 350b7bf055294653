#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/mapped_file.h"
#include "tests/support/memory_maps.h"
#include "tests/support/temp_dir.h"

namespace taper {
namespace {

std::string_view text_of(const MappedFile& file) { return {reinterpret_cast<const char*>(file.data()), file.size()}; }

TEST_CASE("mapped file: a file is mapped for as long as its object lives") {
  const test::TempDir folder;
  const auto path = folder.write("numbers.txt", "one two three");
  {
    MappedFile file(path);
    CHECK(text_of(file) == "one two three");
    MappedFile moved = std::move(file);
    CHECK(file.size() == 0);
    file = MappedFile(folder.write("more.txt", "four"));
    CHECK(text_of(moved) == "one two three");
    CHECK(text_of(file) == "four");
    moved = std::move(file);
    CHECK(text_of(moved) == "four");
    moved.release(0, moved.size());
    CHECK(text_of(moved) == "four");
  }
  CHECK(test::count_mappings_of(folder.path()) == 0);
}

TEST_CASE("mapped file: an empty file is no bytes") {
  const test::TempDir folder;
  CHECK(MappedFile(folder.write("empty", "")).size() == 0);
}

TEST_CASE("mapped file: what is no regular file is refused by name, and not waited for") {
  const test::TempDir folder;
  const auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(MappedFile{pipe}, doctest::Contains("pipe: is no regular file"), UsageError);
  CHECK_THROWS_WITH_AS(MappedFile{folder.path()}, doctest::Contains("is no regular file"), UsageError);
  CHECK_THROWS_WITH_AS(MappedFile{folder / "absent"}, doctest::Contains("absent: cannot be opened: No such file"),
                       UsageError);
}

}  // namespace
}  // namespace taper
