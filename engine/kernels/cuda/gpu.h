// What the sources of this folder are written against. They are CUDA C++ (threadIdx, __syncthreads, __shfl_xor_sync,
// atomicAdd mean what the CUDA C++ Programming Guide says), but for what would tie them to nvcc:
//
//   gpu::launch(kernel<T>, Grid(blocks), threads, shared_bytes, gpu::stream(), arguments...)   in place of <<< >>>
//   GPU_SHARED(float, tile, 64)    a shared array float tile[64], aligned to 16 bytes
//   gpu::dyn_shared<float>()       the shared memory asked for at the launch, aligned to 128 bytes
//   gpu::Scratch<float> sums(n)    device memory for one call of a kernel function; work on the stream keeps its order
//   GPU_UNROLL                     before a loop to be unrolled
//   copy_to_shared_async, mma_16x8x16, load_matrices   what only PTX can say
//
// Two headers stand behind it, chosen for the whole build by TAPER_GPU_BACKEND: native/gpu_backend.h for nvcc, and
// tests/emulation/gpu_backend.h, under which the same text compiles with g++ and clang++ and runs on the processor. So
// no kernel asks which of the two it is. Device code uses no host function, nothing of the standard library but type
// traits, and no spin-waits; sums have one order, whatever the order of blocks.
#pragma once

#include "engine/kernels/element.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"
#include "engine/kernels/target.h"

namespace taper::gpu {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

Stream stream();  // where all of the engine's work is queued, in order

// Device memory, until the end of the scope; what was launched before keeps it.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : data_(take_scratch(count * static_cast<int64_t>(sizeof(T)))) {}
  ~Scratch() { give_back_scratch(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return static_cast<T*>(data_); }

 private:
  void* data_;
};

// kCount elements side by side, moved in pieces of up to 16 bytes. Its address is aligned to that piece.
template <class T, int kCount = 16 / static_cast<int>(sizeof(T))>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  static constexpr int kSize = kCount;
  static constexpr int kPiece = sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16;
  T values[kCount];

  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

template <int kCount, class T>
__device__ inline Pack<T, kCount> load_pack(const T* from) {
  using P = Pack<T, kCount>;
  P pack;
  GPU_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(P)); i += P::kPiece) {
    copy_aligned<P::kPiece>(reinterpret_cast<char*>(&pack) + i, reinterpret_cast<const char*>(from) + i);
  }
  return pack;
}

template <class T, int kCount>
__device__ inline void store_pack(T* to, const Pack<T, kCount>& pack) {
  using P = Pack<T, kCount>;
  GPU_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(P)); i += P::kPiece) {
    copy_aligned<P::kPiece>(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(&pack) + i);
  }
}

// Host side: rows of `cols` elements at these addresses can be read in packs of `count`.
template <class... T>
bool fits_packs(int64_t cols, int count, const T*... rows) {
  const auto is_aligned = [&](const void* address, int64_t size) {
    const int64_t piece = size * count < 16 ? size * count : 16;
    return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(piece) == 0;
  };
  return cols % count == 0 && (is_aligned(rows, static_cast<int64_t>(sizeof(T))) && ...);
}

// The number of this thread in the grid, and how many there are, for one-dimensional launches.
__device__ inline int64_t global_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_total() { return int64_t{gridDim.x} * blockDim.x; }

// target = value, or += value; both as kernels' Acc parameters ask.
template <class G, class C>
__device__ inline void put(G& target, C value, bool adds) {
  if (adds) value += cuda::convert_to<C>(target);
  target = cuda::convert_to<G>(value);
}

struct Sum {
  template <class T>
  __device__ static T combine(T a, T b) {
    return a + b;
  }
};
struct Max {  // a NaN stays
  template <class T>
  __device__ static T combine(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

// Over the lanes of a full warp, or of each group of kLanes; every lane receives the result, the same bits in each.
template <class Op, int kLanes = kWarp, class T>
__device__ inline T warp_reduce(T value) {
  GPU_UNROLL
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = Op::combine(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
template <int kLanes = kWarp, class T>
__device__ inline T warp_sum(T value) {
  return warp_reduce<Sum, kLanes>(value);
}
template <int kLanes = kWarp, class T>
__device__ inline T warp_max(T value) {
  return warp_reduce<Max, kLanes>(value);
}

// Over a one-dimensional block of whole warps; every thread calls it and receives the result. `identity` changes
// nothing.
template <class Op, class T>
__device__ inline T block_reduce(T value, T identity) {
  GPU_SHARED(T, parts, kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_reduce<Op>(value);
  __syncthreads();  // the readers of an earlier call are done
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return warp_reduce<Op>(lane < warps ? parts[lane] : identity);
}
template <class T>
__device__ inline T block_sum(T value) {
  return block_reduce<Sum>(value, T(0));
}
template <class T>
__device__ inline T block_max(T value, T lowest) {
  return block_reduce<Max>(value, lowest);
}

}  // namespace taper::gpu
