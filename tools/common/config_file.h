// The file given with --config: one JSON object whose keys are option names without the leading dashes ("batch-tokens",
// also written "batch_tokens"), whose values are numbers, strings, true or false, or lists of numbers or strings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace taper {

struct ConfigEntry {
  enum class Kind { kNumber, kString, kBool };

  std::string key;  // with '-' for '_'
  Kind kind = Kind::kString;
  bool is_list = false;
  std::vector<std::string> values;  // as text: numbers as in the file's notation, "true" and "false"
  std::string place;                // "FILE:LINE:COLUMN" of the key
};

// Throws UsageError with file, line and column for anything else, a key given twice included.
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path);

}  // namespace taper
