#include "engine/core/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace taper {
namespace {

struct Entry {
  double seconds = 0;
  int64_t calls = 0;
};

std::mutex guard;
std::map<std::string, Entry> entries;
std::chrono::steady_clock::time_point begin;

}  // namespace

namespace detail {

void add_to_profile(const char* name, double seconds) {
  const std::lock_guard lock(guard);
  Entry& entry = entries[name];
  entry.seconds += seconds;
  ++entry.calls;
}

}  // namespace detail

void start_profile() {
  const std::lock_guard lock(guard);
  entries.clear();
  begin = std::chrono::steady_clock::now();
  detail::profile_is_on = true;
}

std::string profile_report() {
  const std::lock_guard lock(guard);
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<std::pair<std::string, Entry>> lines(entries.begin(), entries.end());
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double covered = 0;
  std::string report;
  for (const auto& [name, entry] : lines) {
    covered += entry.seconds;
    report += fmt::format("{:>10.3f} s {:>5.1f} % {:>9} calls  {}\n", entry.seconds, 100 * entry.seconds / whole,
                          entry.calls, name);
  }
  report += fmt::format("{:>10.3f} s {:>5.1f} %                  the rest of {:.3f} s\n", whole - covered,
                        100 * (whole - covered) / whole, whole);
  return report;
}

}  // namespace taper
