// Sums over rows in two stages, without atomic additions: blocks leave sums of their rows, the parts, in device memory;
// then the parts are added in their order. The same bits each time, on any card.
#pragma once

#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {

// A number; or where `live` is present what lies there when the kernel runs, or 1 less that.
struct Factor {
  double value = 1;
  const double* live = nullptr;
  bool is_rest = false;

  __device__ double get() const { return !live ? value : is_rest ? 1 - *live : *live; }
};

// A row of sums: target = factor * (the sum of the parts), or += it. Where `parts` is null the sum is an exact zero;
// where `scalar` is present, its value on the device multiplies the factor.
struct ColumnSum {
  void* target;
  Dtype dtype;
  bool add;
  const void* parts;
  Factor factor;
  const void* scalar;
};

// The parts of all: f32 (f64: is_double), part i from parts + i * stride on.
struct ColumnSums {
  bool is_double;
  int64_t parts, stride, cols;
  int count = 0;
  ColumnSum sums[4] = {};

  // Nothing where target is absent.
  void add(Acc target, const void* parts_, Factor factor = {}, const void* scalar = nullptr) {
    if (target) sums[count++] = {target.data, target.dtype, target.add, parts_, factor, scalar};
  }
  void run() const;
};

// target [cols] (+)= the sums of the columns of x [rows, cols], `stride` elements from one row to the next.
void sum_columns(Acc target, const void* x, Dtype dtype, int64_t rows, int64_t cols, int64_t stride);

// first = factor * the sum of pairs[0:n][0], second = the sum of pairs[0:n][1].
void sum_pairs(double* first, double* second, double factor, const double* pairs, int64_t n);

// How a matrix is cut for such sums: a block takes a warp's packs of columns, and a part of the rows with kRows rows of
// threads.
struct ColumnParts {
  static constexpr unsigned kRows = 8;

  explicit ColumnParts(int64_t rows) : count(gpu::blocks_for(rows, 64, 128)) {}
  gpu::Grid grid(int64_t packs) const { return gpu::Grid(gpu::blocks_for(packs, gpu::kWarp), count); }
  dim3 block() const { return dim3(gpu::kWarp, kRows); }

  int64_t count;
};

// The block's sum of `own` over its rows of threads, written by the first of them where has_column. `shared` has a
// place for each thread.
template <class C, int kWidth>
__device__ void write_column_part(C* to, gpu::Pack<C, kWidth> own, bool has_column, gpu::Pack<C, kWidth>* shared) {
  shared[threadIdx.y * gpu::kWarp + threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.y != 0 || !has_column) return;
  for (unsigned row = 1; row < ColumnParts::kRows; ++row) {
    const auto other = shared[row * gpu::kWarp + threadIdx.x];
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) own[j] += other[j];
  }
  gpu::store_pack(to, own);
}

}  // namespace taper::cuda
