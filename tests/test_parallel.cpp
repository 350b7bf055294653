#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/parallel.h"

namespace taper {
namespace {

class ThreadsForTest {
 public:
  explicit ThreadsForTest(int count) : before_(thread_count()) { set_thread_count(count); }
  ~ThreadsForTest() { set_thread_count(before_); }

 private:
  int before_;
};

TEST_CASE("parallel: every index once, for any size, grain and number of threads") {
  for (const int threads : {1, 2, 3, 7}) {
    const ThreadsForTest chosen(threads);
    for (const int64_t n : {0, 1, 2, 5, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
        std::atomic<int> parts{0}, short_parts{0};
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          ++parts;
          if (end - begin < grain / 2) ++short_parts;
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& count : visits) CHECK(count == 1);
        CHECK(parts <= threads);
        if (n >= grain) CHECK(short_parts == 0);
      }
    }
  }
}

TEST_CASE("parallel: a worker's parts cover the range, cut at multiples of the step") {
  for (const int count : {1, 2, 5}) {
    int64_t next = 0;
    for (int index = 0; index < count; ++index) {
      int64_t begin = -1, end = -1;
      Worker{index, count, nullptr}.part(37, 8, begin, end);
      CHECK(begin == next);
      CHECK((end % 8 == 0 || end == 37));
      next = end;
    }
    CHECK(next == 37);
  }
}

TEST_CASE("parallel: a team meets at its barrier, again and again") {
  constexpr int kThreads = 3, kRounds = 50;
  std::atomic<int> arrived{0}, early{0};
  parallel_team(
      [&](const Worker& worker) {
        for (int round = 1; round <= kRounds; ++round) {
          ++arrived;
          worker.barrier();
          if (arrived < round * worker.count) ++early;
          worker.barrier();
        }
      },
      kThreads);
  CHECK(early == 0);
  CHECK(arrived == kThreads * kRounds);
}

TEST_CASE("parallel: a call from inside a team runs on the caller alone") {
  const ThreadsForTest chosen(2);
  std::atomic<int> most{0}, visits{0};
  parallel_team([&](const Worker&) {
    parallel_team([&](const Worker& inner) {
      if (inner.count > most) most = inner.count;
      ++visits;
    });
  });
  CHECK(most == 1);
  CHECK(visits == 2);
}

TEST_CASE("parallel: a senseless number of threads is refused") {
  CHECK_THROWS_AS(set_thread_count(0), UsageError);
  CHECK_THROWS_AS(set_thread_count(-3), UsageError);
  CHECK_THROWS_AS(set_thread_count(100000), UsageError);
}

}  // namespace
}  // namespace taper
