// The device as g++ and clang++ see it: one of the two headers behind engine/kernels/cuda/gpu.h. It gives CUDA's names
// the meaning they have on a device, with tests/emulation/device.h doing the work.
#pragma once

#include <math.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/core/dtype.h"
#include "engine/kernels/cuda/launch.h"
#include "tests/emulation/access_checker.h"
#include "tests/emulation/device.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define GPU_SHARED(T, name, n) \
  static char name##_tag;      \
  T(&name)                     \
  [n] = *static_cast<T(*)[n]>( \
      ::taper::emulation::shared_array(&name##_tag, #name, sizeof(T[n]), {__builtin_FILE(), __builtin_LINE()}))
#define GPU_UNROLL

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

// Of the thread that runs now.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

#define TAPER_SITE_ARGS const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(TAPER_SITE_ARGS) { taper::emulation::wait_for_block({file, line}); }
inline void __syncwarp(unsigned mask = 0xffffffffu, TAPER_SITE_ARGS) {
  char none = 0;
  taper::emulation::gather_warp(mask, "__syncwarp", {file, line}, &none, [](void* const(&)[32]) {});
}

namespace taper::emulation {

// One lane's part in a shuffle: what it gives and whom it reads.
template <class T>
struct Shuffled {
  T given;
  unsigned source;
  T taken;

  static void combine(void* const (&lanes)[32]) {
    for (void* lane : lanes) {
      if (!lane) continue;
      auto* mine = static_cast<Shuffled*>(lane);
      const auto* other = static_cast<const Shuffled*>(lanes[mine->source]);
      // What an absent lane would give is undefined.
      if (other) {
        mine->taken = other->given;
      } else {
        std::memset(&mine->taken, 0xFF, sizeof mine->taken);
      }
    }
  }
};

template <class T>
T shuffle(unsigned mask, T value, unsigned source, const char* what, Site site) {
  Shuffled<T> mine{value, source, value};
  gather_warp(mask, what, site, &mine, Shuffled<T>::combine);
  return mine.taken;
}

// The lane that a shuffle inside segments of `width` lanes reads; its own where it would leave the segment.
inline unsigned lane_in_segment(int wanted, int width) {
  const int lane = static_cast<int>(lane_of_thread()), first = lane / width * width;
  return static_cast<unsigned>(wanted >= first && wanted < first + width ? wanted : lane);
}

struct Vote {
  bool holds;
  unsigned all;

  static void combine(void* const (&lanes)[32]) {
    unsigned all = 0;
    for (unsigned i = 0; i < 32; ++i) all |= lanes[i] && static_cast<Vote*>(lanes[i])->holds ? 1u << i : 0u;
    for (void* lane : lanes) {
      if (lane) static_cast<Vote*>(lane)->all = all;
    }
  }
};

}  // namespace taper::emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, TAPER_SITE_ARGS) {
  const int first = static_cast<int>(taper::emulation::lane_of_thread()) / width * width;
  return taper::emulation::shuffle(mask, value, static_cast<unsigned>(first + source % width), "__shfl_sync",
                                   {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int step, int width = 32, TAPER_SITE_ARGS) {
  const int wanted = static_cast<int>(taper::emulation::lane_of_thread()) ^ step;
  return taper::emulation::shuffle(mask, value, taper::emulation::lane_in_segment(wanted, width), "__shfl_xor_sync",
                                   {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32, TAPER_SITE_ARGS) {
  const int wanted = static_cast<int>(taper::emulation::lane_of_thread() + step);
  return taper::emulation::shuffle(mask, value, taper::emulation::lane_in_segment(wanted, width), "__shfl_down_sync",
                                   {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32, TAPER_SITE_ARGS) {
  const int wanted = static_cast<int>(taper::emulation::lane_of_thread()) - static_cast<int>(step);
  return taper::emulation::shuffle(mask, value, taper::emulation::lane_in_segment(wanted, width), "__shfl_up_sync",
                                   {file, line});
}
inline unsigned __ballot_sync(unsigned mask, bool holds, TAPER_SITE_ARGS) {
  taper::emulation::Vote vote{holds, 0};
  taper::emulation::gather_warp(mask, "__ballot_sync", {file, line}, &vote, taper::emulation::Vote::combine);
  return vote.all;
}
inline bool __any_sync(unsigned mask, bool holds, TAPER_SITE_ARGS) {
  return __ballot_sync(mask, holds, file, line) != 0;
}
inline bool __all_sync(unsigned mask, bool holds, TAPER_SITE_ARGS) {
  return __ballot_sync(mask, !holds, file, line) == 0;
}

// Threads of the emulation take turns, so these are whole as they stand; the checker is told what they are.
#define TAPER_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
template <class T>
TAPER_UNWATCHED T atomicAdd(T* address, T value) {
  taper::emulation::note_access(address, sizeof(T), taper::emulation::Access::atomic, __builtin_return_address(0));
  const T before = *address;
  *address = before + value;
  return before;
}
template <class T>
TAPER_UNWATCHED T atomicMax(T* address, T value) {
  taper::emulation::note_access(address, sizeof(T), taper::emulation::Access::atomic, __builtin_return_address(0));
  const T before = *address;
  *address = before < value ? value : before;
  return before;
}
template <class T>
T __ldg(const T* address) {
  return *address;
}
// Of one type, as on the device where a mixture is ambiguous or surprising.
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }

namespace taper::gpu {

using Stream = void*;

template <class T>
T* dyn_shared() {
  return static_cast<T*>(emulation::dynamic_shared());
}

inline bf16 round_to_bf16(float value) { return bf16(value); }

inline int count_bits(unsigned bits) { return __builtin_popcount(bits); }

// Copies kBytes, 1 to 16 and a power of two, as one access; both addresses are multiples of it.
template <int kBytes>
TAPER_UNWATCHED void copy_aligned(void* to, const void* from, TAPER_SITE_ARGS) {
  const auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (bits % kBytes != 0) emulation::fail_in_kernel({file, line}, "an access is not aligned to its size");
  emulation::note_access(from, kBytes, emulation::Access::read, __builtin_return_address(0));
  emulation::note_access(to, kBytes, emulation::Access::write, __builtin_return_address(0));
  std::memcpy(to, from, kBytes);
}

inline void copy_to_shared_async(void* shared, const void* global, bool is_valid, TAPER_SITE_ARGS) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 || (is_valid && reinterpret_cast<uintptr_t>(global) % 16 != 0)) {
    emulation::fail_in_kernel({file, line}, "an asynchronous copy is not aligned to 16 bytes");
  }
  emulation::copy_later(shared, global, is_valid ? 16 : 0, is_valid ? 0 : 16);
}
inline void commit_copies() { emulation::commit_copies(); }
template <int kPending>
inline void wait_for_copies() {
  emulation::wait_for_copies(kPending);
}

namespace detail {

struct MmaLane {
  float* c;
  const uint32_t* a;
  const uint32_t* b;
};
void mma_16x8x16(void* const (&lanes)[32]);

struct MatrixLane {
  uint32_t* taken;
  const void* row;
};
void load_matrices(void* const (&lanes)[32]);
void load_matrices_transposed(void* const (&lanes)[32]);

}  // namespace detail

inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TAPER_SITE_ARGS) {
  detail::MmaLane lane{c, a, b};
  emulation::gather_warp(0xffffffffu, "mma", {file, line}, &lane, detail::mma_16x8x16);
}

template <bool kTransposed = false>
inline void load_matrices(uint32_t (&fragments)[4], const void* shared_row, TAPER_SITE_ARGS) {
  if (reinterpret_cast<uintptr_t>(shared_row) % 16 != 0) {
    emulation::fail_in_kernel({file, line}, "a row of load_matrices is not aligned to 16 bytes");
  }
  emulation::note_access(shared_row, 16, emulation::Access::read, __builtin_return_address(0));
  detail::MatrixLane lane{fragments, shared_row};
  emulation::gather_warp(0xffffffffu, "load_matrices", {file, line}, &lane,
                         kTransposed ? detail::load_matrices_transposed : detail::load_matrices);
}

namespace detail {

template <class T>
void check_argument(const T& argument, int number, const Grid& grid) {
  if constexpr (std::is_pointer_v<T>) emulation::check_device_pointer(argument, number, grid);
}

template <class... P>
struct Call {
  void (*kernel)(P...);
  std::tuple<P...> values;

  static void run(const void* context) {
    const Call& call = *static_cast<const Call*>(context);
    std::apply(call.kernel, call.values);
  }
};

}  // namespace detail

template <class... P, class... A>
void launch(void (*kernel)(P...), const Grid& grid, dim3 block, size_t shared_bytes, Stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  static_assert((!std::is_reference_v<P> && ...), "a kernel cannot follow a reference to the host");
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied to the device byte by byte");
  if (grid.is_empty()) return;
  const detail::Call<P...> call{kernel, {static_cast<P>(std::forward<A>(args))...}};
  int number = 0;
  std::apply([&](const auto&... value) { (detail::check_argument(value, number++, grid), ...); }, call.values);
  emulation::launch_grid(grid, {block.x, block.y, block.z}, shared_bytes, detail::Call<P...>::run,
                         {&call, sizeof call});
}

}  // namespace taper::gpu
