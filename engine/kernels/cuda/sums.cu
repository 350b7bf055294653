#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {
namespace {

constexpr int kPartRows = 8;  // threads that share a column
constexpr int kPairThreads = 256;

template <class C>
__global__ void add_parts(ColumnSums sums) {
  GPU_SHARED(double, shared, kPartRows* gpu::kWarp);
  const ColumnSum& s = sums.sums[blockIdx.y];
  const int64_t column = int64_t{blockIdx.x} * gpu::kWarp + threadIdx.x;
  double sum = 0;
  if (column < sums.cols && s.parts) {
    const C* parts = static_cast<const C*>(s.parts) + column;
    for (int64_t i = threadIdx.y; i < sums.parts; i += kPartRows) sum += static_cast<double>(parts[i * sums.stride]);
  }
  shared[threadIdx.y * gpu::kWarp + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= sums.cols) return;
  for (int row = 1; row < kPartRows; ++row) sum += shared[row * gpu::kWarp + static_cast<int>(threadIdx.x)];
  sum *= s.factor.get();
  if (s.scalar) sum *= static_cast<double>(*static_cast<const C*>(s.scalar));
  if (s.dtype == Dtype::bf16) {
    bf16& target = static_cast<bf16*>(s.target)[column];
    const float before = s.add ? convert_to<float>(target) : 0.0f;
    target = convert_to<bf16>(before + static_cast<float>(sum));
  } else {
    C& target = static_cast<C*>(s.target)[column];
    target = s.add ? target + static_cast<C>(sum) : static_cast<C>(sum);
  }
}

template <class T, int kWidth>
__global__ void sum_rows(Compute<T>* parts, const T* x, int64_t rows, int64_t cols, int64_t stride) {
  using C = Compute<T>;
  using Values = gpu::Pack<C, kWidth>;
  constexpr int64_t kRows = ColumnParts::kRows;
  constexpr int kUnroll = 4;
  GPU_SHARED(Values, shared, gpu::kWarp * kRows);
  const int64_t column = (int64_t{blockIdx.x} * gpu::kWarp + threadIdx.x) * kWidth;
  const int64_t first = rows * blockIdx.y / gridDim.y, last = rows * (blockIdx.y + 1) / gridDim.y;
  const bool has_column = column < cols;
  Values sum{};
  for (int64_t base = first + threadIdx.y; has_column && base < last; base += kUnroll * kRows) {
    gpu::Pack<T, kWidth> values[kUnroll];
    GPU_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = base + u * kRows;
      values[u] = row < last ? gpu::load_pack<kWidth>(x + row * stride + column) : gpu::Pack<T, kWidth>{};
    }
    GPU_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) sum[j] += convert_to<C>(values[u][j]);
    }
  }
  write_column_part(parts + int64_t{blockIdx.y} * cols + column, sum, has_column, shared);
}

__global__ void add_pairs(double* first, double* second, double factor, const double* pairs, int64_t n) {
  double a = 0, b = 0;
  for (int64_t i = threadIdx.x; i < n; i += kPairThreads) {
    const auto pair = gpu::load_pack<2>(pairs + 2 * i);
    a += pair[0];
    b += pair[1];
  }
  a = gpu::block_sum(a);
  b = gpu::block_sum(b);
  if (threadIdx.x != 0) return;
  *first = factor * a;
  *second = b;
}

}  // namespace

void ColumnSums::run() const {
  const gpu::Grid grid(gpu::blocks_for(cols, gpu::kWarp), count);
  const auto kernel = is_double ? add_parts<double> : add_parts<float>;
  gpu::launch(kernel, grid, dim3(gpu::kWarp, kPartRows), 0, gpu::stream(), *this);
}

void sum_columns(Acc target, const void* x, Dtype dtype, int64_t rows, int64_t cols, int64_t stride) {
  with_float_type(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    const ColumnParts cut(rows);
    const gpu::Scratch<C> parts(cut.count * cols);
    const T* from = static_cast<const T*>(x);
    const bool has_packs = gpu::fits_packs(cols, kWidth, from) && stride % kWidth == 0;
    gpu::launch(has_packs ? sum_rows<T, kWidth> : sum_rows<T, 1>, cut.grid(has_packs ? cols / kWidth : cols),
                cut.block(), 0, gpu::stream(), parts.data(), from, rows, cols, stride);
    ColumnSums sums{std::is_same_v<C, double>, cut.count, cols, cols};
    sums.add(target, parts.data());
    sums.run();
  });
}

void sum_pairs(double* first, double* second, double factor, const double* pairs, int64_t n) {
  gpu::launch(add_pairs, gpu::Grid(1), kPairThreads, 0, gpu::stream(), first, second, factor, pairs, n);
}

}  // namespace taper::cuda
