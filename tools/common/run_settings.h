// The settings of a run, RUN/config.json, and whether a call that resumes the run repeats them.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace taper {

// The file's name within the folder of a run.
inline constexpr const char* kRunSettingsFile = "config.json";

// A setting as its command line would have it. Whole, not as shown(): two long paths may differ in their last letter.
template <class Json>
std::string setting_text(const Json& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? "its default" : found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

// UsageError that names the first setting in which `settings` (Cli::settings_json) and RUN/config.json differ, so that
// a run goes on as it was begun. Free to differ: where things are, how many threads there are, and what is watched,
// written and kept on the way.
void require_same_settings(const std::filesystem::path& run, const std::string& settings);

}  // namespace taper
