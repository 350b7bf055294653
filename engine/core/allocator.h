// Memory of tensors on the host: a caching allocator. Blocks are 64-byte aligned; freed blocks are kept for the next
// request of the same size class, so a training step after the first asks the system for nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace taper {

struct MemoryUse {
  int64_t live_bytes = 0;    // handed out now
  int64_t peak_bytes = 0;    // most ever handed out at once, since reset_peak_memory
  int64_t cached_bytes = 0;  // kept for reuse
};

// `what` names the tensor in the message when memory runs out: Error with its size and what is in use.
void* allocate(int64_t bytes, const char* what);
void release(void* block);

MemoryUse memory_use();
void reset_peak_memory();
void release_cached_memory();

// For tests. While guarded, fresh blocks are filled with 0xFF (a NaN in every float type) and followed by a canary;
// check_guards() counts the damaged canaries behind live blocks, and release() counts into the same sum.
void set_memory_guard(bool is_guarded);
int64_t damaged_guards();

}  // namespace taper
