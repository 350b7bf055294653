// Reference data the tests compare with, and what happens where it is absent: the test is skipped, says so, and is
// counted as skipped.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace taper::test {

// A file or folder of the reference data: $TAPER_SHARED, by default ../shared, is its root.
std::filesystem::path shared_file(const std::filesystem::path& relative);

// Marks the running test case as skipped and prints why.
void skip_test(std::string_view reason);

// Whether the running test case was marked, and forgets it; for the runner.
bool take_skip_mark();

}  // namespace taper::test

// Ends the running test case here, as skipped.
#define SKIP_TEST(reason)             \
  do {                                \
    ::taper::test::skip_test(reason); \
    return;                           \
  } while (false)

#define SKIP_WITHOUT_SHARED(relative)                                                               \
  do {                                                                                              \
    const auto taper_shared_path = ::taper::test::shared_file(relative);                            \
    if (!std::filesystem::exists(taper_shared_path)) SKIP_TEST("no " + taper_shared_path.string()); \
  } while (false)
