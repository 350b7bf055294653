#include "tools/common/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>
#include <system_error>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxPlanBytes = 16 << 20;

constexpr std::array<std::string_view, 9> kOwn{"output", "resume", "overwrite", "json", "quiet",
                                               "config", "live",   "profile",   "help"};

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 200 && text[0] != '.' && text[0] != '-' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string::npos;
}

std::string text_at(const Json& line, const char* key, const std::string& place) {
  require_usage(line.contains(key) && line[key].is_string(), "{}: {}: want a text", place, key);
  return line[key].get<std::string>();
}

void check_options(const Json& options, const std::string& place) {
  require_usage(options.is_object(), "{}: options: got {}, want an object", place, shown(options));
  for (const auto& [key, value] : options.items()) {
    require_usage(std::count(kOwn.begin(), kOwn.end(), key) == 0 && key.find('=') == std::string::npos,
                  "{}: options: {} is not a plan's to give", place, key);
    require_usage(value.is_string() || value.is_number() || value.is_boolean(),
                  "{}: options: {}: got {}, want text, a number or true", place, key, shown(value));
  }
}

PlannedRun parse_run(const std::string& text, const std::string& place, const std::vector<PlannedRun>& earlier) {
  const Json line = try_parse_json<Json>(text);
  require_usage(line.is_object(), "{}: want a JSON object of one run", place);
  for (const auto& [key, value] : line.items()) {
    require_usage(key == "name" || key == "program" || key == "options" || key == "after",
                  "{}: unknown key; got {}, want name, program, options or after", place, key);
  }
  PlannedRun run;
  run.name = text_at(line, "name", place);
  require_usage(is_name(run.name), "{}: name: got '{}', want letters, digits, '.', '_' and '-'", place, run.name);
  run.program = text_at(line, "program", place);
  require_usage(run.program == "pretrain" || run.program == "finetune",
                "{}: program: got '{}', want pretrain or finetune", place, run.program);
  require_usage(line.contains("options"), "{}: options are missing", place);
  run.options = line["options"];
  check_options(run.options, place);
  if (line.contains("after")) run.after = text_at(line, "after", place);
  const auto is_earlier = [&](const std::string& name) {
    return std::any_of(earlier.begin(), earlier.end(), [&](const PlannedRun& each) { return each.name == name; });
  };
  require_usage(!is_earlier(run.name), "{}: a second run of the name {}", place, run.name);
  require_usage(run.after.empty() || is_earlier(run.after), "{}: after: got '{}', want the name of an earlier run",
                place, run.after);
  return run;
}

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

std::vector<PlannedRun> parse_plan(const std::string& text, const std::string& source) {
  require_usage(text.size() <= kMaxPlanBytes, "{}: too large a plan; got {} bytes, want at most {}", source,
                text.size(), kMaxPlanBytes);
  std::istringstream lines(text);
  std::vector<PlannedRun> runs;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    runs.push_back(parse_run(line, fmt::format("{}:{}", source, number), runs));
  }
  require_usage(!runs.empty(), "{}: holds no runs; want one JSON object a line", source);
  return runs;
}

std::vector<PlannedRun> read_plan(const std::filesystem::path& file) {
  return parse_plan(read_file(file, kMaxPlanBytes), file.string());
}

std::string plan_text(const std::vector<PlannedRun>& runs) {
  std::string text;
  for (const PlannedRun& run : runs) {
    Json line;
    line["name"] = run.name;
    line["program"] = run.program;
    line["options"] = run.options;
    if (!run.after.empty()) line["after"] = run.after;
    text += line.dump() + "\n";
  }
  return text;
}

std::optional<std::string> option_text(const PlannedRun& run, const std::string& key) {
  if (!run.options.contains(key)) return {};
  return word_of(run.options[key]);
}

std::optional<int64_t> option_count(const PlannedRun& run, const std::string& key) {
  const std::optional<std::string> text = option_text(run, key);
  if (!text) return {};
  int64_t count = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, count);
  require_usage(error == std::errc() && rest == end && count > 0, "plan: {}: --{}: got {}, want a whole number above 0",
                run.name, key, shown(run.options[key]));
  return count;
}

std::vector<std::string> arguments_of(const Json& options) {
  std::vector<std::string> arguments;
  for (const auto& [key, value] : options.items()) {
    if (value.is_boolean()) {
      if (value.get<bool>()) arguments.push_back("--" + key);
      continue;
    }
    // One word, so that a value may begin with a dash.
    arguments.push_back("--" + key + "=" + word_of(value));
  }
  return arguments;
}

}  // namespace taper
