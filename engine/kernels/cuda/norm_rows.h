// What both passes of the tapered norm share: the form that the options decide, and a row in the hands of the
// blockDim.x threads that share it.
#pragma once

#include <initializer_list>

#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {

template <NormKind kKind, bool kNormBranch, bool kScaleBranch>
struct NormForm {
  static constexpr bool kCentres = kKind == NormKind::layer;
  static constexpr bool kNorm = kNormBranch;    // gate > 0
  static constexpr bool kScale = kScaleBranch;  // gate < 1
};

template <NormKind kKind, class Body>
void with_norm_form(double gate, Body&& body) {
  if (gate >= 1) return body(NormForm<kKind, true, false>());
  if (gate <= 0) return body(NormForm<kKind, false, true>());
  body(NormForm<kKind, true, true>());
}

template <class Body>
void with_norm_form(const NormOptions& options, Body&& body) {
  if (options.kind == NormKind::layer) return with_norm_form<NormKind::layer>(options.gate, body);
  with_norm_form<NormKind::rms>(options.gate, body);
}

// The parameters and scalars of one call; c stays on the device.
template <class C>
struct NormParameters {
  const C* gamma;
  const C* beta;
  const C* gamma_tilde;
  const C* beta_tilde;
  const C* c;
  Factor gate;  // g
  Factor rest;  // 1 - g
  C eps;
};

// A gate of 0 or 1 decided the form already.
inline const double* live_gate(const NormOptions& options) {
  return options.gate > 0 && options.gate < 1 ? options.live_gate.as<double>() : nullptr;
}
inline Factor gate_factor(const NormOptions& options) { return {options.gate, live_gate(options), false}; }
inline Factor rest_factor(const NormOptions& options) { return {1 - options.gate, live_gate(options), true}; }

template <class C>
NormParameters<C> norm_parameters(In gamma, In beta, In gamma_tilde, In beta_tilde, In c, const NormOptions& options) {
  return {gamma.as<C>(), beta.as<C>(),         gamma_tilde.as<C>(),  beta_tilde.as<C>(),
          c.as<C>(),     gate_factor(options), rest_factor(options), static_cast<C>(options.eps)};
}

// Packs of a row that a thread holds in registers, by what leaves them unspilled.
template <class H, int kWidth>
constexpr int held_packs() {
  return std::is_same_v<H, double> ? 4 / kWidth : kWidth == 1 ? 8 : 16 / kWidth;
}

// Values beside a residual stream of type H may be of another type: f64 goes with f64 alone, f32 with bf16.
template <class H, int kWidth>
__device__ __forceinline__ gpu::Pack<Compute<H>, kWidth> load_companion(const void* from, bool is_bf16, int64_t at) {
  using C = Compute<H>;
  if constexpr (std::is_same_v<H, double>) {
    return gpu::load_pack<kWidth>(static_cast<const double*>(from) + at);
  } else {
    gpu::Pack<C, kWidth> values;
    if (is_bf16) {
      const auto stored = gpu::load_pack<kWidth>(static_cast<const bf16*>(from) + at);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) values[j] = convert_to<C>(stored[j]);
    } else {
      values = gpu::load_pack<kWidth>(static_cast<const float*>(from) + at);
    }
    return values;
  }
}

template <class H, int kWidth>
__device__ __forceinline__ void store_companion(void* to, bool is_bf16, int64_t at,
                                                const gpu::Pack<Compute<H>, kWidth>& values) {
  if constexpr (std::is_same_v<H, double>) {
    gpu::store_pack(static_cast<double*>(to) + at, values);
  } else if (is_bf16) {
    gpu::Pack<bf16, kWidth> stored;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) stored[j] = convert_to<bf16>(values[j]);
    gpu::store_pack(static_cast<bf16*>(to) + at, stored);
  } else {
    gpu::store_pack(static_cast<float*>(to) + at, values);
  }
}

// Rows of `cols` elements, in any of these views, can be moved in packs of `width`.
inline bool fit_packs(int width, int64_t cols, std::initializer_list<ConstView> views) {
  for (const ConstView& view : views) {
    const int64_t piece = size_of(view.dtype) * width < 16 ? size_of(view.dtype) * width : 16;
    if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(piece) != 0) return false;
  }
  return cols % width == 0;
}

// body(k, i) for the packs i of a row that are this thread's. The first kHeld have a constant k < kHeld and may stay
// in registers; what a longer row has beyond comes with k = kHeld.
template <int kHeld, class Body>
__device__ __forceinline__ void for_each_pack(int64_t count, Body&& body) {
  const int64_t step = blockDim.x;
  GPU_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int64_t i = threadIdx.x + k * step;
    if (i < count) body(k, i);
  }
  for (int64_t i = threadIdx.x + kHeld * step; i < count; i += step) body(kHeld, i);
}

// The sums over the blockDim.x threads of each row of the block, known to all of them. Every thread of the block calls
// it, with 0 where it has no row. `shared` has 32 * kCount entries.
template <int kCount, class C>
__device__ __forceinline__ void sum_over_row(C (&values)[kCount], C* shared) {
  GPU_UNROLL
  for (int n = 0; n < kCount; ++n) values[n] = gpu::warp_sum(values[n]);
  if (blockDim.x == gpu::kWarp) return;
  const unsigned warps = blockDim.x / gpu::kWarp, first = threadIdx.y * warps;
  if (threadIdx.x % gpu::kWarp == 0) {
    GPU_UNROLL
    for (int n = 0; n < kCount; ++n) shared[n * gpu::kWarp + first + threadIdx.x / gpu::kWarp] = values[n];
  }
  __syncthreads();
  GPU_UNROLL
  for (int n = 0; n < kCount; ++n) {
    values[n] = 0;
    for (unsigned warp = 0; warp < warps; ++warp) values[n] += shared[n * gpu::kWarp + first + warp];
  }
  __syncthreads();  // before the next sums overwrite
}

// x threads to a row: a warp, or as many as hold it in registers, up to `most`; y rows at once, for `least` threads.
inline dim3 threads_for_rows(int64_t packs, int held, unsigned least, unsigned most) {
  unsigned threads = gpu::kWarp;
  while (threads < most && int64_t{threads} * held < packs) threads *= 2;
  return dim3(threads, threads < least ? least / threads : 1);
}

}  // namespace taper::cuda
