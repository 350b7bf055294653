// The device as nvcc sees it: one of the two headers behind gpu.h.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/core/dtype.h"
#include "engine/kernels/cuda/launch.h"

#define GPU_SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define GPU_UNROLL _Pragma("unroll")

namespace taper::gpu {

using Stream = cudaStream_t;

template <class T>
__device__ inline T* dyn_shared() {
  // One array for all kernels: `extern` arrays of two types under one name do not compile.
  extern __shared__ __align__(128) unsigned char taper_dynamic_shared[];
  return reinterpret_cast<T*>(taper_dynamic_shared);
}

__host__ __device__ inline bf16 round_to_bf16(float value) {
#ifdef __CUDA_ARCH__
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  return bf16(value);
#endif
}

__device__ inline int count_bits(unsigned bits) { return __popc(bits); }

// Copies kBytes, 1 to 16 and a power of two, as one access; both addresses are multiples of it.
template <int kBytes>
__device__ inline void copy_aligned(void* to, const void* from) {
  if constexpr (kBytes == 16) {
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
  } else if constexpr (kBytes == 8) {
    *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
  } else if constexpr (kBytes == 4) {
    *static_cast<uint32_t*>(to) = *static_cast<const uint32_t*>(from);
  } else if constexpr (kBytes == 2) {
    *static_cast<uint16_t*>(to) = *static_cast<const uint16_t*>(from);
  } else {
    *static_cast<uint8_t*>(to) = *static_cast<const uint8_t*>(from);
  }
}

// Begins to copy 16 bytes of device memory to shared memory; kValid of them, 0 or 16: the rest become zero. Complete
// after commit_copies() and wait_for_copies() of this thread; seen by others after a barrier behind that.
__device__ inline void copy_to_shared_async(void* shared, const void* global, bool is_valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last kPending groups are complete.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// c += a b on tensor cores, a warp together: m16n8k16, a row-major, b column-major, both bf16 in pairs; the fragments
// are those of PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of bf16 from shared memory to the fragments of mma_16x8x16, a warp together. Lane 8 i + r gives
// the address of row r of matrix i, aligned to 16 bytes; lane l receives of each the elements 2 (l % 4) and the next of
// row l / 4, or transposed: rows 2 (l % 4) and the next of column l / 4 (PTX ISA, ldmatrix).
template <bool kTransposed = false>
__device__ inline void load_matrices(uint32_t (&fragments)[4], const void* shared_row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                 : "r"(address)
                 : "memory");
  }
}

namespace detail {

void launch_kernel(const void* kernel, const Grid& grid, dim3 block, void** arguments, size_t shared_bytes,
                   Stream stream);

template <class Tuple, size_t... kAt>
void launch_with(const void* kernel, const Grid& grid, dim3 block, size_t shared_bytes, Stream stream, Tuple& values,
                 std::index_sequence<kAt...>) {
  void* arguments[] = {&std::get<kAt>(values)..., nullptr};
  launch_kernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // namespace detail

template <class... P, class... A>
void launch(void (*kernel)(P...), const Grid& grid, dim3 block, size_t shared_bytes, Stream stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  static_assert((!std::is_reference_v<P> && ...), "a kernel cannot follow a reference to the host");
  if (grid.is_empty()) return;
  std::tuple<P...> values(static_cast<P>(std::forward<A>(args))...);
  detail::launch_with(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream, values,
                      std::index_sequence_for<P...>());
}

}  // namespace taper::gpu
