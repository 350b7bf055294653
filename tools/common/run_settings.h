// The settings of a run, RUN/config.json, and whether a call that resumes the run repeats them.
#pragma once

#include <filesystem>
#include <string>

namespace taper {

// The file's name within the folder of a run.
inline constexpr const char* kRunSettingsFile = "config.json";

// UsageError that names the first setting in which `settings` (Cli::settings_json) and RUN/config.json differ, so that
// a run goes on as it was begun. Free to differ: where things are, how many threads there are, and what is watched,
// written and kept on the way.
void require_same_settings(const std::filesystem::path& run, const std::string& settings);

}  // namespace taper
