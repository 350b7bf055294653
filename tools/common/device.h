// Where a program computes, as --device asks.
#pragma once

#include <string>

#include "engine/core/device.h"

namespace taper {

// auto: the GPU where one can be used, else the processor; cuda: Error with the reason where none can. A line on stderr
// says which GPU it is, or in a build with CUDA why there is none.
Device choose_device(const std::string& asked);

}  // namespace taper
