// A text that a run's model writes, for a report.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace taper {

struct TextSample {
  std::string prompt;
  std::string text;
};

// By the newest checkpoint, from a beginning that is the same for all, with the same seed. None where the run has no
// model that can be decoded, or no tokenizer.
std::optional<TextSample> sample_of(const std::filesystem::path& run);

}  // namespace taper
