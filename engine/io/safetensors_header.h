// The JSON header of a safetensors file, read without trust (see safetensors.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/io/safetensors.h"

namespace taper {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
};

inline constexpr int64_t kSafetensorsHeaderMost = 100'000'000;

// `file` names the file in errors; `data_bytes` is what lies behind the header, all of which the entries must cover.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& file);

// A JSON string of this text. Error where it is no valid UTF-8.
std::string json_string(const std::string& text, const std::string& file);

// A name as messages show it: in quotes, on one line, cut where it is long.
std::string quoted_name(const std::string& name);

}  // namespace taper
