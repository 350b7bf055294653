// What this machine does at most, measured when asked: the processor's read bandwidth far beyond its caches, and its
// rate of large matrix products, with the threads in use. About a second.
#pragma once

#include "engine/core/profile.h"

namespace taper {

MachineLimits measure_machine_limits();

}  // namespace taper
