// What this process has mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace taper::test {

// How many mappings there are of files below `folder`.
inline size_t count_mappings_of(const std::filesystem::path& folder) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(folder.string() + "/") != std::string::npos;
  return count;
}

}  // namespace taper::test
