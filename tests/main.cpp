// Runs the test cases and ends with one line of counts. Arguments are doctest's; the Makefile passes FILTER as
// --test-case.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "engine/core/parallel.h"
#include "tests/support/shared.h"

namespace {

struct Counts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

Counts counts;

// Counts what doctest runs: a test case that gave up for want of its data is neither passed nor failed.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override { taper::test::take_skip_mark(); }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const bool was_skipped = taper::test::take_skip_mark();
    if (!stats.testCaseSuccess) {
      ++counts.failed;
    } else if (was_skipped) {
      ++counts.skipped;
    } else {
      ++counts.passed;
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

int main(int argc, char** argv) {
  taper::limit_spinning(argv);
  doctest::Context context;
  context.setOption("minimal", true);
  context.applyCommandLine(argc, argv);
  const int status = context.run();
  if (context.shouldExit()) return status;
  const bool ran_nothing = counts.passed + counts.failed + counts.skipped == 0;
  if (ran_nothing) std::fprintf(stderr, "tests: no test case matches the filter\n");
  std::fflush(stderr);
  std::printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
  return status != 0 || ran_nothing ? 1 : 0;
}
