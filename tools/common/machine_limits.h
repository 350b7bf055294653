// What this machine does at most, measured when asked: the processor's read bandwidth, and its rate of large matrix
// products, with the threads in use. About a second.
#pragma once

#include <cstdint>

#include "engine/core/profile.h"

namespace taper {

inline constexpr int64_t kBeyondCaches = 256'000'000;  // bytes

// Reading is of so many bytes over and over, from whichever cache holds them.
MachineLimits measure_machine_limits(int64_t read_bytes = kBeyondCaches);

}  // namespace taper
