// A small file as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace taper {

// The content of a regular file of bounded size. Throws UsageError where there is no file of that name, Error where it
// is no regular file, cannot be read, or is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Whether a name that a file states stands for a file beside it: no path, no way out of the folder.
bool is_plain_name(std::string_view name);

}  // namespace taper
