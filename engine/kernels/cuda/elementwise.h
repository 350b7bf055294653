// The shape of launches in which each thread does one element after another.
#pragma once

#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {

inline constexpr int kElementThreads = 256;

inline gpu::Grid element_grid(int64_t n, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  constexpr int64_t kMostBlocks = 4096;  // several for each multiprocessor; the threads go on in strides
  return gpu::Grid(gpu::blocks_for(n, kElementThreads, kMostBlocks), 1, 1, file, line);
}

// Rows are done by warps, this many to a block.
inline constexpr int kRowWarps = 4;
inline constexpr int kRowThreads = kRowWarps * gpu::kWarp;

inline gpu::Grid row_grid(int64_t rows, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return gpu::Grid(gpu::blocks_for(rows, kRowWarps), 1, 1, file, line);
}
__device__ inline int64_t row_of_warp() { return int64_t{blockIdx.x} * kRowWarps + threadIdx.x / gpu::kWarp; }
__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % gpu::kWarp; }

}  // namespace taper::cuda
