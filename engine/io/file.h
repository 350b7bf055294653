// Whole small files: read with a bound, written so that the old content stays until the new one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace taper {

// The content of a regular file. Throws Error naming it where it is missing, no regular file, unreadable, or larger
// than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Writes beside the path, syncs, renames over it, syncs the folder: at every moment the path holds the old content or
// the new one. Throws Error naming the path; what was there then stays, and nothing else is left behind.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace taper
