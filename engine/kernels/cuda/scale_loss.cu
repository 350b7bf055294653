// The scale of rows of the residual stream, the anchor's gradient, and the radial part of a gradient.
#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

// Sums over the row of a warp.
template <class H>
__device__ Compute<H> row_mean(const H* h, int64_t cols) {
  using C = Compute<H>;
  C sum = 0;
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) sum += convert_to<C>(h[i]);
  return gpu::warp_sum(sum) / static_cast<C>(cols);
}

template <class H>
__device__ Compute<H> row_mean_square(const H* h, Compute<H> mean, int64_t cols) {
  using C = Compute<H>;
  C sum = 0;
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) {
    const C value = convert_to<C>(h[i]) - mean;
    sum += value * value;
  }
  return gpu::warp_sum(sum) / static_cast<C>(cols);
}

template <class H>
__global__ void row_scales(Compute<H>* s, const H* h, int64_t rows, int64_t cols, bool is_layer, Compute<H> eps) {
  using C = Compute<H>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  h += row * cols;
  const C mean = is_layer ? row_mean(h, cols) : C(0);
  const C scale = sqrt(row_mean_square(h, mean, cols) + eps);
  if (lane_of_warp() == 0) s[row] = scale;
}

// One block, so that the sums have one order.
constexpr int kSumThreads = 512;

template <class C>
__global__ void sum_scales(double* sums, const C* s, int64_t rows, double target) {
  double sum = 0, greatest = 0, squares = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kSumThreads) {
    const double scale = static_cast<double>(s[row]);
    sum += scale;
    greatest = gpu::Max::combine(scale, greatest);
    squares += (scale - target) * (scale - target);
  }
  sum = gpu::block_sum(sum);
  greatest = gpu::block_max(greatest, 0.0);
  squares = gpu::block_sum(squares);
  if (threadIdx.x != 0) return;
  sums[0] = sum;
  sums[1] = greatest;
  sums[2] = squares;
}

// dh (+)= factor * 2 (s - target) / (s cols) * (h - mean)
template <class G, class H>
__global__ void scale_rows_bwd(G* dh, const H* h, const Compute<H>* s, int64_t rows, int64_t cols, bool is_layer,
                               const double* upstream, double target, double factor, bool adds) {
  using C = Compute<H>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  h += row * cols;
  dh += row * cols;
  const C mean = is_layer ? row_mean(h, cols) : C(0);
  if (upstream) factor *= *upstream;
  const double scale = static_cast<double>(s[row]);
  const C slope = static_cast<C>(2 * factor * (scale - target) / (scale * static_cast<double>(cols)));
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) {
    gpu::put(dh[i], slope * (convert_to<C>(h[i]) - mean), adds);
  }
}

// <dh, h> / |h| and |dh| of each row.
template <class H, class G>
__global__ void radial_rows(double* parts, const H* h, const G* dh, int64_t rows, int64_t cols) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  double inner = 0, h_square = 0, dh_square = 0;
  for (int64_t i = row * cols + lane_of_warp(); i < (row + 1) * cols; i += gpu::kWarp) {
    const double a = convert_to<double>(h[i]), b = convert_to<double>(dh[i]);
    inner += a * b;
    h_square += a * a;
    dh_square += b * b;
  }
  inner = gpu::warp_sum(inner);
  h_square = gpu::warp_sum(h_square);
  dh_square = gpu::warp_sum(dh_square);
  if (lane_of_warp() != 0) return;
  parts[2 * row] = h_square == 0 ? 0 : inner / sqrt(h_square);
  parts[2 * row + 1] = sqrt(dh_square);
}

__global__ void sum_radial(double* sums, const double* parts, int64_t rows) {
  double radial = 0, magnitude = 0, norm = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kSumThreads) {
    radial += parts[2 * row];
    magnitude += fabs(parts[2 * row]);
    norm += parts[2 * row + 1];
  }
  radial = gpu::block_sum(radial);
  magnitude = gpu::block_sum(magnitude);
  norm = gpu::block_sum(norm);
  if (threadIdx.x != 0) return;
  sums[0] = radial;
  sums[1] = magnitude;
  sums[2] = norm;
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::scale_loss_fwd(Out sums, Out s, In h, NormKind kind, double eps, double target) {
  with_float_type(h.dtype, [&](auto type) {
    using H = typename decltype(type)::type;
    using C = Compute<H>;
    gpu::launch(row_scales<H>, row_grid(h.rows()), kRowThreads, 0, gpu::stream(), s.as<C>(), h.as<H>(), h.rows(),
                h.cols(), kind == NormKind::layer, eps);
    gpu::launch(sum_scales<C>, gpu::Grid(1), kSumThreads, 0, gpu::stream(), sums.as<double>(), s.as<C>(), h.rows(),
                target);
  });
}

void cuda::scale_loss_bwd(Acc dh, In h, In s, In upstream, NormKind kind, double target, double factor) {
  with_grad_type(h.dtype, dh.dtype, [&](auto type, auto grad_type) {
    using H = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    gpu::launch(scale_rows_bwd<G, H>, row_grid(h.rows()), kRowThreads, 0, gpu::stream(), dh.as<G>(), h.as<H>(),
                s.as<Compute<H>>(), h.rows(), h.cols(), kind == NormKind::layer, upstream.as<double>(), target, factor,
                dh.add);
  });
}

void cuda::radial_sums(Out sums, In h, In dh) {
  with_float_type(h.dtype, [&](auto type) {
    with_float_type(dh.dtype, [&](auto grad_type) {
      using H = typename decltype(type)::type;
      using G = typename decltype(grad_type)::type;
      const gpu::Scratch<double> parts(2 * h.rows());
      gpu::launch(radial_rows<H, G>, row_grid(h.rows()), kRowThreads, 0, gpu::stream(), parts.data(), h.as<H>(),
                  dh.as<G>(), h.rows(), h.cols());
      gpu::launch(sum_radial, gpu::Grid(1), kSumThreads, 0, gpu::stream(), sums.as<double>(), parts.data(), h.rows());
    });
  });
}

}  // namespace taper
