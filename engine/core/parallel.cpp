#include "engine/core/parallel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#else
#include <condition_variable>
#include <mutex>
#include <vector>
#endif

#include "engine/core/error.h"
#include "engine/core/thread_setting.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// LLVM's OpenMP loses some of what it allocates for its threads. The checker knows it by the library alone, so what a
// parallel region of ours loses is not seen with clang++ either; with g++ it is.
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so\n"; }
#endif
#endif

namespace taper {
namespace {

// Cores rather than hardware threads where there are more than two: two threads of one core share its vector units.
int allowed_processors() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  const int processors = CPU_COUNT(&mask);
  if (processors <= 2) return processors;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!(file >> siblings)) return processors;
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

// The control group's quota in whole processors, 0 where there is none.
int quota_processors() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return static_cast<int>(std::max(1.0, std::strtod(quota.c_str(), nullptr) / period));
}

int default_thread_count() {
  if (const int asked = threads_asked_for(); asked > 0) return asked;
  const int quota = quota_processors();
  const int allowed = std::max(1, allowed_processors());
  return quota > 0 && quota < allowed ? quota : allowed;
}

int& team_size() {
  static int count = default_thread_count();
  return count;
}

// Some ten microseconds: enough to bridge the gaps between kernels.
[[maybe_unused]] constexpr const char* kSpinCount = "1000";

thread_local bool is_in_team = false;

void run_alone(void (*body)(void*, const Worker&), void* context) { body(context, Worker{}); }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void limit_spinning([[maybe_unused]] char** argv) {
#if defined(_OPENMP) && defined(__linux__)
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", kSpinCount, 0);
  // By its own path, so that the process keeps its name. Returns where it is not allowed: then all goes on as it is.
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  execv(path, argv);
#endif
}

int threads_asked_for() {
  const char* text = std::getenv("TAPER_THREADS");
  if (!text || !*text) return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  require_usage(*end == '\0' && value >= 1 && value <= kMaxThreads,
                "TAPER_THREADS: got '{}', want a whole number from 1 to {}", text, kMaxThreads);
  return static_cast<int>(value);
}

int thread_count() { return team_size(); }

void set_thread_count(int count) {
  require_usage(count >= 1 && count <= kMaxThreads, "threads: got {}, want 1 to {}", count, kMaxThreads);
  team_size() = count;
#ifdef _OPENMP
  omp_set_num_threads(count);
#endif
}

void SpinBarrier::wait() {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  // More threads than processors would spin out whole time slices: give way now and then.
  for (int spins = 1; generation_.load(std::memory_order_acquire) == generation; ++spins) {
    relax();
    if (spins % 4096 == 0) std::this_thread::yield();
  }
}

#ifdef _OPENMP

const char* threading_backend() { return "OpenMP"; }

void detail::run_team(int threads, void (*body)(void*, const Worker&), void* context) {
  // Who waits for a thread that never comes waits for ever: no more are asked for than the runtime gives.
  threads = std::min(threads, omp_get_thread_limit());
  if (threads <= 1 || is_in_team || omp_in_parallel()) return run_alone(body, context);
  omp_set_dynamic(0);
  SpinBarrier meeting(threads);
#pragma omp parallel num_threads(threads)
  {
    is_in_team = true;
    body(context, Worker{omp_get_thread_num(), omp_get_num_threads(), &meeting});
    is_in_team = false;
  }
}

#else

const char* threading_backend() { return "std::thread"; }

namespace {

class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void run(int threads, void (*body)(void*, const Worker&), void* context) {
    SpinBarrier meeting(threads);
    {
      const std::lock_guard lock(mutex_);
      while (static_cast<int>(threads_.size()) < threads - 1) {
        const int index = static_cast<int>(threads_.size()) + 1;
        threads_.emplace_back([this, index, seen = generation_] { serve(index, seen); });
      }
      body_ = body;
      context_ = context;
      size_ = threads;
      meeting_ = &meeting;
      working_ = threads - 1;
      ++generation_;
    }
    wake_.notify_all();
    is_in_team = true;
    body(context, Worker{0, threads, &meeting});
    is_in_team = false;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return working_ == 0; });
  }

 private:
  void serve(int index, uint64_t seen) {
    is_in_team = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return is_ending_ || generation_ != seen; });
      if (is_ending_) return;
      seen = generation_;
      if (index >= size_) continue;
      const Worker worker{index, size_, meeting_};
      const auto body = body_;
      void* const context = context_;
      lock.unlock();
      body(context, worker);
      lock.lock();
      if (--working_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  void (*body_)(void*, const Worker&) = nullptr;
  void* context_ = nullptr;
  SpinBarrier* meeting_ = nullptr;
  int size_ = 0;
  int working_ = 0;
  uint64_t generation_ = 0;
  bool is_ending_ = false;
};

}  // namespace

void detail::run_team(int threads, void (*body)(void*, const Worker&), void* context) {
  static Pool pool;
  static std::mutex one_team;
  if (threads <= 1 || is_in_team) return run_alone(body, context);
  const std::lock_guard lock(one_team);
  pool.run(threads, body, context);
}

#endif

}  // namespace taper
