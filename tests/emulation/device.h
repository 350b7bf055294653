// The emulated device: what gpu_backend.h's kernels call. One thread of the processor runs all threads of a launch,
// block after block, each on a stack of its own until it waits for others (a barrier, a shuffle) or ends.
//
// Found while running, and thrown as Error with the place in the kernel: a barrier that some threads never reach; a
// shuffle whose lanes disagree; threads that wait for each other forever; a shared array written beyond its end; more
// shared memory or threads than a device has; a pointer of the host among the arguments. Shared memory and fresh device
// memory are full of 0xFF bytes, NaNs in every float type.
//
// Not emulated: spin-waits, grid-wide barriers, cooperative groups, the order of streams, __launch_bounds__.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/kernels/cuda/launch.h"

namespace taper::emulation {

// A place in a kernel.
struct Site {
  const char* file;
  int line;
};

struct Dimensions {
  unsigned x = 1, y = 1, z = 1;
};

// What is queued happens at once; while a graph is recorded it is kept instead, for each of the graph's launches.
void enqueue(std::function<void()> work);

// Queues body(context) once for each thread of the launch, with the context's bytes as they are now.
struct Context {
  const void* data;
  size_t bytes;
};
void launch_grid(const gpu::Grid& grid, const Dimensions& block, size_t shared_bytes, void (*body)(const void* context),
                 Context context);

// Throws unless a kernel may read the address: null, or inside memory of the device.
void check_device_pointer(const void* pointer, int argument, const gpu::Grid& grid);

// ---- called by the running thread of a kernel ----
void* dynamic_shared();
// The same memory for every thread of the block that asks with this tag.
void* shared_array(const void* tag, const char* name, size_t bytes, Site site);

void wait_for_block(Site site);

// Waits until all lanes of the mask are here with data of their own, then the last one calls combine(lanes), once; data
// of lanes that are not in the mask, or have ended, is null.
using Combine = void (*)(void* const (&lanes)[32]);
void gather_warp(unsigned mask, const char* what, Site site, void* data, Combine combine);
unsigned lane_of_thread();

// Copies that complete only when waited for.
void copy_later(void* to, const void* from, size_t bytes, size_t zeros);
void commit_copies();
void wait_for_copies(int pending_groups);

[[noreturn]] void fail_in_kernel(Site site, const char* text);

}  // namespace taper::emulation
