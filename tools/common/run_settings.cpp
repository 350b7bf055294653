#include "tools/common/run_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "tools/common/cli.h"

namespace taper {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxSettingsBytes = 1 << 20;

constexpr std::array<std::string_view, 13> kFree{
    kVersionKey,   "output",     "data",      "threads",       "device",        "resume",      "eval-every",
    "eval-tokens", "save-every", "keep-last", "sample-tokens", "sample-prompt", "check-radial"};

}  // namespace

void require_same_settings(const std::filesystem::path& run, const std::string& settings) {
  const std::filesystem::path file = run / kRunSettingsFile;
  const Json begun = try_parse_json<Json>(read_file(file, kMaxSettingsBytes));
  require_usage(begun.is_object(), "resume: {} is damaged; want a JSON object", file.string());
  const Json now = Json::parse(settings);
  const auto compare = [&](const Json& keys) {
    for (const auto& [key, value] : keys.items()) {
      if (std::count(kFree.begin(), kFree.end(), key) > 0) continue;
      const std::string is = setting_text(now, key), was = setting_text(begun, key);
      require_usage(is == was, "resume: --{} is another than the run's; got {}, want {}, or --config {} for all", key,
                    is, was, file.string());
    }
  };
  compare(now);
  compare(begun);
}

}  // namespace taper
