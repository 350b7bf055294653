// Where the time goes, by the name of a kernel: calls, seconds, what was moved and computed. Off, it costs one test a
// call. start_profile() turns it on; profile_report() gives the table.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace taper {

// What a call cannot do without: each operand moved once, and the operations of its matrix products by their type.
struct KernelWork {
  int64_t bytes = 0;
  double f32_flops = 0, bf16_flops = 0;  // f64 counts as f32
};

// What a machine does at most; 0: not known.
struct MachineLimits {
  double bytes_per_s = 0;
  double f32_flops_per_s = 0, bf16_flops_per_s = 0;
};

namespace detail {
inline std::atomic<bool> profile_is_on{false};
void add_to_profile(const char* name, double seconds, const KernelWork& work);
}  // namespace detail

void start_profile();  // forgets what was measured before
void stop_profile();   // what was measured stays
inline bool is_profiling() { return detail::profile_is_on.load(std::memory_order_relaxed); }

// Times its own life where a profile is on.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name, const KernelWork& work = {})
      : name_(is_profiling() ? name : nullptr), work_(work) {
    if (name_) begin_ = std::chrono::steady_clock::now();
  }
  ~ProfileScope() {
    if (!name_) return;
    detail::add_to_profile(name_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(),
                           work_);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  const char* name_;
  KernelWork work_;
  std::chrono::steady_clock::time_point begin_;
};

// A line for each name, the longest first: seconds, share of the whole from start_profile() to stop_profile() or now,
// calls, GB/s, GFLOP/s, and the share of the limits: the least time that they allow for the work, of the time it took.
// Above 100 % where operands were in cache. The last line is what no name covers.
std::string profile_report(const MachineLimits& limits = {});

}  // namespace taper
