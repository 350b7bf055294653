// A small file as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace taper {

// The content of a regular file. Throws Error naming it where it is missing, no regular file, unreadable, or larger
// than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace taper
