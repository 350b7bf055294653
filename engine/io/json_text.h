// JSON values in messages.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace taper {

// Whatever a file holds, in a few words: the library's own dump() descends as deep as the value is nested, and throws
// where a text is no UTF-8.
template <class Json>
std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  constexpr std::size_t kMost = 60;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace taper
