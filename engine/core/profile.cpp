#include "engine/core/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/core/profile_entries.h"

namespace taper {
namespace {

std::mutex guard;
std::map<std::string, ProfileEntry> entries;
std::chrono::steady_clock::time_point begin, end;

// A limit that is not known limits nothing.
double least_seconds(const KernelWork& work, const MachineLimits& limits) {
  const auto seconds = [](double amount, double rate) { return rate > 0 ? amount / rate : 0.0; };
  return std::max(seconds(static_cast<double>(work.bytes), limits.bytes_per_s),
                  seconds(work.f32_flops, limits.f32_flops_per_s) + seconds(work.bf16_flops, limits.bf16_flops_per_s));
}

std::string line_of(const std::string& name, const ProfileEntry& entry, double whole, const MachineLimits& limits) {
  const double flops = entry.work.f32_flops + entry.work.bf16_flops, least = least_seconds(entry.work, limits);
  const auto rate = [&](double amount, int digits) {
    return amount > 0 ? fmt::format("{:.{}f}", amount * 1e-9 / entry.seconds, digits) : std::string("-");
  };
  const std::string share = least > 0 ? fmt::format("{:.0f} %", 100 * least / entry.seconds) : "-";
  return fmt::format("{:>10.3f} {:>6.1f} % {:>9} {:>8} {:>9} {:>9}  {}\n", entry.seconds, 100 * entry.seconds / whole,
                     entry.calls, rate(static_cast<double>(entry.work.bytes), 1), rate(flops, 0), share, name);
}

}  // namespace

void add_to_profile(const std::string& name, const ProfileEntry& more) {
  const std::lock_guard lock(guard);
  ProfileEntry& entry = entries[name];
  entry.seconds += more.seconds;
  entry.calls += more.calls;
  entry.work.bytes += more.work.bytes;
  entry.work.f32_flops += more.work.f32_flops;
  entry.work.bf16_flops += more.work.bf16_flops;
}

void detail::add_to_profile(const char* name, double seconds, const KernelWork& work) {
  taper::add_to_profile(name, {seconds, 1, work});
}

std::map<std::string, ProfileEntry> profile_entries() {
  const std::lock_guard lock(guard);
  return entries;
}

void start_profile() {
  const std::lock_guard lock(guard);
  entries.clear();
  begin = std::chrono::steady_clock::now();
  detail::profile_is_on = true;
}

void stop_profile() {
  const std::lock_guard lock(guard);
  end = std::chrono::steady_clock::now();
  detail::profile_is_on = false;
}

std::string profile_report(const MachineLimits& limits) {
  const std::lock_guard lock(guard);
  const auto last = is_profiling() ? std::chrono::steady_clock::now() : end;
  const double whole = std::chrono::duration<double>(last - begin).count();
  std::vector<std::pair<std::string, ProfileEntry>> lines(entries.begin(), entries.end());
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string report =
      fmt::format("{:>10} {:>8} {:>9} {:>8} {:>9} {:>9}\n", "seconds", "share", "calls", "GB/s", "GFLOP/s", "of limit");
  ProfileEntry rest;
  rest.seconds = whole;
  for (const auto& [name, entry] : lines) {
    rest.seconds -= entry.seconds;
    report += line_of(name, entry, whole, limits);
  }
  report += fmt::format("{:>10.3f} {:>6.1f} % {:>40}the rest of {:.3f} s\n", rest.seconds, 100 * rest.seconds / whole,
                        "", whole);
  if (limits.bytes_per_s > 0) {
    report += fmt::format("limits, as just measured: {:.1f} GB/s read, {:.0f} GFLOP/s in f32, {:.0f} in bf16\n",
                          limits.bytes_per_s * 1e-9, limits.f32_flops_per_s * 1e-9, limits.bf16_flops_per_s * 1e-9);
  }
  return report;
}

}  // namespace taper
