// A small file as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace taper {

// The content of a regular file of bounded size. Throws UsageError where there is no file of that name, Error where it
// is no regular file, cannot be read, or is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace taper
