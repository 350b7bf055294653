#include "engine/kernels/cuda/gemm.h"
#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {
namespace {

template <class T>
struct Backward {
  T* dpre;
  const T* dy;
  const T* pre;
  Compute<T>* parts;  // sums of columns, or null
  int64_t rows, cols;
};

template <class T, class Function, int kWidth>
__global__ void activation_backward(Backward<T> b) {
  using C = Compute<T>;
  using Values = gpu::Pack<C, kWidth>;
  constexpr int64_t kRows = ColumnParts::kRows;
  constexpr int kUnroll = 2;
  GPU_SHARED(Values, shared, gpu::kWarp * kRows);
  const int64_t column = (int64_t{blockIdx.x} * gpu::kWarp + threadIdx.x) * kWidth;
  const int64_t first = b.rows * blockIdx.y / gridDim.y, last = b.rows * (blockIdx.y + 1) / gridDim.y;
  const bool has_column = column < b.cols;
  Values sum{};
  for (int64_t base = first + threadIdx.y; has_column && base < last; base += kUnroll * kRows) {
    gpu::Pack<T, kWidth> dy[kUnroll], pre[kUnroll];
    GPU_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = base + u * kRows;
      if (row >= last) continue;
      dy[u] = gpu::load_pack<kWidth>(b.dy + row * b.cols + column);
      pre[u] = gpu::load_pack<kWidth>(b.pre + row * b.cols + column);
    }
    GPU_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = base + u * kRows;
      if (row >= last) continue;
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const C d = convert_to<C>(dy[u][j]) * Function::slope(convert_to<C>(pre[u][j]));
        sum[j] += d;
        dy[u][j] = convert_to<T>(d);
      }
      gpu::store_pack(b.dpre + row * b.cols + column, dy[u]);
    }
  }
  if (b.parts) write_column_part(b.parts + int64_t{blockIdx.y} * b.cols + column, sum, has_column, shared);
}

template <class T, class Function>
void run_backward(Out dpre, Acc dbias, In dy, In pre) {
  using C = Compute<T>;
  constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  const int64_t rows = dy.rows(), cols = dy.cols();
  const ColumnParts cut(rows);
  const gpu::Scratch<C> parts(dbias ? cut.count * cols : 0);
  const Backward<T> b{dpre.as<T>(), dy.as<T>(), pre.as<T>(), dbias ? parts.data() : nullptr, rows, cols};
  const bool has_packs = gpu::fits_packs(cols, kWidth, b.dpre, b.dy, b.pre);
  gpu::launch(has_packs ? activation_backward<T, Function, kWidth> : activation_backward<T, Function, 1>,
              cut.grid(has_packs ? cols / kWidth : cols), cut.block(), 0, gpu::stream(), b);
  ColumnSums sums{std::is_same_v<C, double>, cut.count, cols, cols};
  sums.add(dbias, parts.data());
  sums.run();
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::matmul(Acc c, In a, In b, MatmulOptions options) { gemm(matmul_gemm(c, a, b, options)); }

void cuda::linear_fwd(Out y, Out pre, In x, In w, In bias, Activation act) {
  gemm(linear_gemm(y, pre, x, w, bias, act));
}

void cuda::linear_act_bwd(Out dpre, Acc dbias, In dy, In pre, Activation act) {
  if (act == Activation::none) {
    if (dpre.data != dy.data) convert(dpre, dy);
    if (dbias) sum_columns(dbias, dy.data, dy.dtype, dy.rows(), dy.cols(), dy.cols());
    return;
  }
  with_float_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(act, [&](auto function) { run_backward<T, decltype(function)>(dpre, dbias, dy, pre); });
  });
}

}  // namespace taper
