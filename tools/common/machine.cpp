#include "tools/common/machine.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "engine/core/cpu_features.h"
#include "engine/core/parallel.h"

namespace taper {
namespace {

// The first value of that name in a file of "name : value" lines.
std::string value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.rfind(name, 0) != 0 || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> describe_machine() {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.emplace_back(name, value);
  };
  add("processor", value_in("/proc/cpuinfo", "model name"));
  add("cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN)));
  add("kernels for", cpu_isa_name());
  add("threads", fmt::format("{}, {}", thread_count(), threading_backend()));
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  add("memory", fmt::format("{:.1f} GB", bytes / 1e9));
  utsname system{};
  if (uname(&system) == 0) add("system", fmt::format("{} {}, {}", system.sysname, system.release, system.machine));
  add("compiler", __VERSION__);
  return facts;
}

}  // namespace taper
