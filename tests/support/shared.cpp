#include "tests/support/shared.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace taper::test {
namespace {

bool is_marked = false;

}  // namespace

std::filesystem::path shared_file(const std::filesystem::path& relative) {
  const char* root = std::getenv("TAPER_SHARED");
  return std::filesystem::path(root != nullptr && *root != '\0' ? root : "../shared") / relative;
}

void skip_test(std::string_view reason) {
  is_marked = true;
  std::printf("skipped: %s: %.*s\n", doctest::getContextOptions()->currentTest->m_name, static_cast<int>(reason.size()),
              reason.data());
}

bool take_skip_mark() {
  const bool was_marked = is_marked;
  is_marked = false;
  return was_marked;
}

}  // namespace taper::test
