// Threads: one team for the whole process. OpenMP's where the compiler has it (Eigen and oneDNN use the same team),
// std::thread behind the same interface elsewhere and under the thread sanitizer.
// Functions handed in must not throw. A call from inside a team runs on the calling thread alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace taper {

// TAPER_THREADS, else what affinity and quota allow: one thread a core where there are more than two.
int thread_count();
void set_thread_count(int count);  // count >= 1
const char* threading_backend();   // "OpenMP" or "std::thread"

// Call first thing in main. GNU's OpenMP lets waiting threads spin for milliseconds; where another program wants the
// processor, a thread that spins keeps the one it waits for from running (a training step on a busy machine took ten
// times as long). The runtime reads its settings before main, so the program starts itself once more with a short spin,
// unless the user has set one (GOMP_SPINCOUNT, OMP_WAIT_POLICY).
void limit_spinning(char** argv);

// Threads that meet many times within microseconds: waits by spinning.
class SpinBarrier {
 public:
  explicit SpinBarrier(int count) : count_(count) {}
  void wait();

 private:
  const int count_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> generation_{0};
};

// One thread's place in a team.
struct Worker {
  int index = 0;
  int count = 1;
  SpinBarrier* meeting = nullptr;

  void barrier() const {
    if (count > 1) meeting->wait();
  }
  // This worker's contiguous part of [0, n), cut at multiples of `step`.
  void part(int64_t n, int64_t step, int64_t& begin, int64_t& end) const {
    const int64_t steps = (n + step - 1) / step;
    begin = steps * index / count * step;
    end = steps * (index + 1) / count * step;
    if (begin > n) begin = n;
    if (end > n) end = n;
  }
};

namespace detail {
void run_team(int threads, void (*body)(void* context, const Worker& worker), void* context);
}

// body(const Worker&) once on each of `threads` threads of the team (default: all).
template <class Body>
void parallel_team(Body&& body, int threads = thread_count()) {
  detail::run_team(
      threads,
      [](void* context, const Worker& worker) { (*static_cast<std::remove_reference_t<Body>*>(context))(worker); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// body(begin, end) over contiguous parts of [0, n), none shorter than `grain` unless n is.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t most = (n + grain - 1) / grain;
  const int threads = static_cast<int>(most < thread_count() ? most : thread_count());
  if (threads <= 1) return body(int64_t{0}, n);
  parallel_team(
      [&](const Worker& worker) {
        const int64_t begin = n * worker.index / worker.count;
        const int64_t end = n * (worker.index + 1) / worker.count;
        if (begin < end) body(begin, end);
      },
      threads);
}

}  // namespace taper
