// JSON that strangers wrote: read within limits, and shown in messages.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace taper {

inline constexpr int kDeepestJson = 64;

// A whole text as a tree. UsageError, naming `source`, where it is no JSON, with the byte, holds a number beyond a
// double's range, or is nested deeper than kDeepestJson: the library copies and destroys its trees recursively, and no
// file of ours or of others needs more.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::string_view source) {
  const auto check_depth = [&](int depth, typename Json::parse_event_t, Json&) {
    require_usage(depth <= kDeepestJson, "{}: is nested too deeply; want at most {} levels", source, kDeepestJson);
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const typename Json::parse_error& error) {
    fail_usage("{}: not valid JSON at byte {} of {}", source, error.byte, text.size());
  } catch (const typename Json::out_of_range&) {
    fail_usage("{}: not valid JSON: a number is beyond what a double can hold", source);
  }
}

// The same where a text that is no JSON is not worth an error: what is_discarded() then.
template <class Json = nlohmann::json>
Json try_parse_json(std::string_view text) {
  try {
    return parse_json<Json>(text, "");
  } catch (const UsageError&) {
    return Json(Json::value_t::discarded);
  }
}

// Whatever a file holds, in a few words: the library's own dump() descends as deep as the value is nested, and throws
// where a text is no UTF-8.
template <class Json>
std::string shown(const Json& value) {
  constexpr std::size_t kLongestArray = 4;
  if (value.is_object()) return "an object";
  if (value.is_array() && (value.empty() || value.size() > kLongestArray)) return "an array";
  if (value.is_array()) {
    std::string list;
    for (const Json& element : value) {
      list += (list.empty() ? "[" : ", ") + (element.is_structured() ? "..." : shown(element));
    }
    return list + "]";
  }
  constexpr std::size_t kMost = 60;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}
inline std::string shown(const std::string& text) { return shown(nlohmann::json(text)); }

}  // namespace taper
