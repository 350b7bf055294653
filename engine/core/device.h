// Where a tensor lives.
#pragma once

#include <cstdint>

namespace taper {

enum class Device : uint8_t { cpu, cuda };

const char* to_string(Device device);

}  // namespace taper
