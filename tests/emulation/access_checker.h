// Watches every access of emulated kernels to shared and device memory. Their sources are compiled with the
// instrumentation of the thread sanitizer, but its hooks (__tsan_read4 and the like) are ours: access_checker.cpp.
// Told, with the place in the kernel:
//   - a race: two threads reach the same bytes, one of them writes, and no barrier orders the two; between blocks of
//   one
//     launch nothing does but atomics. Barriers and __syncwarp order accesses, shuffles do not.
//   - bytes that were read before they were written
//   - bytes outside of every array
// Beside the compiler's own sanitizers the hooks are theirs, and clang's copies of structures call none: there nothing
// is watched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace taper::emulation {

enum class Bytes : uint8_t { forbidden, unset, set };

enum class Memory : uint8_t { shared, device };

// Once for each kind; all of it is forbidden until marked.
void watch_memory(Memory kind, const void* begin, size_t bytes);
void mark_memory(const void* begin, size_t bytes, Bytes state);

// The thread that runs, for comparison with those that came before. Counters of barriers begin at 0 in each block.
struct Runner {
  uint32_t block = 0;  // of the launch
  uint16_t thread = 0;
  uint16_t barriers = 0;       // the block has passed
  uint16_t warp_barriers = 0;  // its warp has passed
};

bool can_watch();                    // false with sanitizers and with clang
void watch_launch(bool is_watched);  // a new launch begins
void watch_block();                  // and a new block, whose shared memory is another
extern Runner runner;

enum class Access : uint8_t { read, write, atomic };
// For what the instrumentation does not see. `place` as __builtin_return_address(0) gives it.
void note_access(const void* address, size_t bytes, Access access, const void* place);

}  // namespace taper::emulation
