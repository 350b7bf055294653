// What the fuzz targets share. A target hands libFuzzer's bytes to a reader: whatever they are, it takes them or throws
// taper::Error; anything else that leaves it, and any read outside, is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace taper::fuzz {

// A file of this name in a folder of this process's own, gone at exit.
std::filesystem::path input_path(const std::string& name);
// The same, filled with these bytes.
std::filesystem::path write_input(const std::string& name, std::string_view bytes);

// Ends the program: a property of the reader does not hold.
void expect(bool holds, const char* what);

template <class Function>
void takes_or_refuses(Function function) {
  try {
    function();
  } catch (const Error&) {
  }
}

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Cuts at the first zero byte; the second part is empty where there is none.
inline std::string_view cut_at_zero(std::string_view& rest) {
  const size_t at = rest.find('\0');
  const std::string_view first = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return first;
}

}  // namespace taper::fuzz
