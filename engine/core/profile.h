// Where the time goes: calls and seconds by the name of a kernel. Off, it costs one test a call.
// start_profile() turns it on; profile_report() gives the table.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

namespace taper {

namespace detail {
inline std::atomic<bool> profile_is_on{false};
void add_to_profile(const char* name, double seconds);
}  // namespace detail

void start_profile();  // forgets what was measured before
inline bool is_profiling() { return detail::profile_is_on.load(std::memory_order_relaxed); }

// Times its own life where a profile is on.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name) : name_(is_profiling() ? name : nullptr) {
    if (name_) begin_ = std::chrono::steady_clock::now();
  }
  ~ProfileScope() {
    if (!name_) return;
    detail::add_to_profile(name_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  const char* name_;
  std::chrono::steady_clock::time_point begin_;
};

// A line for each name, the longest first: seconds, share of the whole since start_profile(), calls. The last line is
// what no name covers.
std::string profile_report();

}  // namespace taper
