#include "engine/kernels/cuda/launch.h"

#include "engine/core/allocator.h"
#include "engine/core/error.h"

namespace taper::gpu {

void fail_on_device(const std::string& text) { fail("cuda: {}", text); }

void fail_grid(const char* file, int line, int64_t x, int64_t y, int64_t z) {
  fail("{}:{}: a launch is too large for the device; got {} x {} x {} blocks, want at most 2147483647 x 65535 x 65535",
       file, line, x, y, z);
}

void* take_scratch(int64_t bytes) { return allocate(bytes, "a kernel's workspace", Device::cuda); }
void give_back_scratch(void* memory) { release(memory, Device::cuda); }

}  // namespace taper::gpu
