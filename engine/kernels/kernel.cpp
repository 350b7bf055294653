#include "engine/kernels/kernel.h"

#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"

namespace taper {

void fail_no_kernel(const char* name, Device device) {
  fail("{}: this build has no kernel for {}", name, to_string(device));
}

void finish_on_device() { cuda_runtime().synchronise(); }

}  // namespace taper
