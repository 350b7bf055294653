// Memory of tensors: a caching allocator for each device. Blocks are aligned to 64 bytes, on CUDA to 256; freed blocks
// are kept for the next request of the same size class, so a training step after the first asks the system for nothing.
// On CUDA a block may be handed out again while work that was queued before still reads it: the stream keeps the order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/device.h"

namespace taper {

struct MemoryUse {
  int64_t live_bytes = 0;    // handed out now
  int64_t peak_bytes = 0;    // most ever handed out at once, since reset_peak_memory
  int64_t cached_bytes = 0;  // kept for reuse
};

// `what` names the tensor in the message when memory runs out: Error with its size and what is in use.
void* allocate(int64_t bytes, const char* what, Device device = Device::cpu);
void release(void* block, Device device = Device::cpu);

MemoryUse memory_use(Device device = Device::cpu);
void reset_peak_memory(Device device = Device::cpu);
void release_cached_memory(Device device = Device::cpu);

// What is taken while a pool is open is the pool's until it is dropped: let go of, it serves the pool's own requests
// alone. Fresh memory comes out of the common cache. For work that is done again later at the same addresses.
int open_memory_pool(Device device);    // Error where one is open
bool close_memory_pool(Device device);  // whether memory of others was let go of meanwhile; false where none is open
void drop_memory_pool(int pool, Device device);  // what it holds becomes common again

// For tests, on all devices. While guarded, fresh blocks are filled with 0xFF (a NaN in every float type) and followed
// by a canary; check_guards() counts the damaged canaries behind live blocks, and release() counts into the same sum.
void set_memory_guard(bool is_guarded);
int64_t damaged_guards();

}  // namespace taper
