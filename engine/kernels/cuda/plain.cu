// The plain ops: pointwise functions, broadcasting arithmetic, sums over dimensions, softmax, SwiGLU.
#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/layout.h"

namespace taper::cuda {
namespace {

template <class F, class T>
__global__ void map(T* y, const T* x, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    y[i] = convert_to<T>(F::value(convert_to<Compute<T>>(x[i])));
  }
}

template <class F, class G, class T>
__global__ void map_slope(G* dx, const T* dy, const T* x, int64_t n, bool adds) {
  using C = Compute<T>;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    gpu::put(dx[i], convert_to<C>(dy[i]) * F::slope(convert_to<C>(x[i])), adds);
  }
}

template <class F, class T>
__global__ void combine(T* y, const T* a, const T* b, Layout y_layout, Layout a_layout, Layout b_layout, int64_t n) {
  using C = Compute<T>;
  const int64_t cols = y_layout.dims[kMaxRank - 1];
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const int64_t row = i / cols, col = i % cols;
    const int64_t at_a = a_layout.offset_of_row(y_layout, row) + col * a_layout.strides[kMaxRank - 1];
    const int64_t at_b = b_layout.offset_of_row(y_layout, row) + col * b_layout.strides[kMaxRank - 1];
    y[i] = convert_to<T>(F::value(convert_to<C>(a[at_a]), convert_to<C>(b[at_b])));
  }
}

// Where in x the summand `number` of element `element` of y lies: y's coordinates, and those of the summed dimensions.
__device__ int64_t offset_of_summand(const Layout& y, const Layout& x, int64_t element, int64_t number) {
  int64_t offset = 0;
  for (int i = kMaxRank; i-- > 0;) {
    offset += element % y.dims[i] * x.strides[i];
    element /= y.dims[i];
    if (y.dims[i] == x.dims[i]) continue;
    offset += number % x.dims[i] * x.strides[i];
    number /= x.dims[i];
  }
  return offset;
}

// Few summands: a thread for each element of y.
template <class G, class T>
__global__ void sum_by_thread(G* y, const T* x, Layout y_layout, Layout x_layout, int64_t n, int64_t count, bool adds) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += convert_to<double>(x[offset_of_summand(y_layout, x_layout, i, k)]);
    gpu::put(y[i], static_cast<Compute<G>>(sum), adds);
  }
}

// Many: a block.
template <class G, class T>
__global__ void sum_by_block(G* y, const T* x, Layout y_layout, Layout x_layout, int64_t count, bool adds) {
  const int64_t i = blockIdx.x;
  double sum = 0;
  for (int64_t k = threadIdx.x; k < count; k += blockDim.x) {
    sum += convert_to<double>(x[offset_of_summand(y_layout, x_layout, i, k)]);
  }
  sum = gpu::block_sum(sum);
  if (threadIdx.x == 0) gpu::put(y[i], static_cast<Compute<G>>(sum), adds);
}

template <class T>
__global__ void softmax_rows(T* y, const T* x, int64_t rows, int64_t cols) {
  using C = Compute<T>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  y += row * cols;
  x += row * cols;
  C greatest = convert_to<C>(x[0]);
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) {
    greatest = gpu::Max::combine(convert_to<C>(x[i]), greatest);
  }
  greatest = gpu::warp_max(greatest);
  C sum = 0;
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) sum += math::exp(convert_to<C>(x[i]) - greatest);
  const C factor = C(1) / gpu::warp_sum(sum);
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) {
    y[i] = convert_to<T>(math::exp(convert_to<C>(x[i]) - greatest) * factor);
  }
}

template <class G, class T>
__global__ void softmax_rows_bwd(G* dx, const T* dy, const T* y, int64_t rows, int64_t cols, bool adds) {
  using C = Compute<T>;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  dx += row * cols;
  dy += row * cols;
  y += row * cols;
  C mean = 0;
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) mean += convert_to<C>(dy[i]) * convert_to<C>(y[i]);
  mean = gpu::warp_sum(mean);
  for (int64_t i = lane_of_warp(); i < cols; i += gpu::kWarp) {
    gpu::put(dx[i], convert_to<C>(y[i]) * (convert_to<C>(dy[i]) - mean), adds);
  }
}

template <class T>
__global__ void swiglu(T* y, const T* x, int64_t cols, int64_t n) {
  using C = Compute<T>;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const T* gate = x + i / cols * 2 * cols + i % cols;
    y[i] = convert_to<T>(math::Silu::value(convert_to<C>(gate[0])) * convert_to<C>(gate[cols]));
  }
}

template <class G, class T>
__global__ void swiglu_slope(G* dx, const T* dy, const T* x, int64_t cols, int64_t n, bool adds) {
  using C = Compute<T>;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const int64_t at = i / cols * 2 * cols + i % cols;
    const C upstream = convert_to<C>(dy[i]), gate = convert_to<C>(x[at]), up = convert_to<C>(x[at + cols]);
    gpu::put(dx[at], upstream * up * math::Silu::slope(gate), adds);
    gpu::put(dx[at + cols], upstream * math::Silu::value(gate), adds);
  }
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::unary_fwd(Out y, In x, Unary function) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(function, [&](auto f) {
      const int64_t n = x.numel();
      gpu::launch(map<decltype(f), T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), x.as<T>(), n);
    });
  });
}

void cuda::unary_bwd(Acc dx, In dy, In x, Unary function) {
  with_grad_type(x.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    math::with_function(function, [&](auto f) {
      const int64_t n = x.numel();
      gpu::launch(map_slope<decltype(f), G, T>, element_grid(n), kElementThreads, 0, gpu::stream(), dx.as<G>(),
                  dy.as<T>(), x.as<T>(), n, dx.add);
    });
  });
}

void cuda::binary_fwd(Out y, In a, In b, Binary function) {
  with_float_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(function, [&](auto f) {
      const int64_t n = y.numel();
      gpu::launch(combine<decltype(f), T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), a.as<T>(),
                  b.as<T>(), Layout(y.shape), Layout(a.shape), Layout(b.shape), n);
    });
  });
}

void cuda::sum_to(Acc y, In x) {
  with_grad_type(x.dtype, y.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    const int64_t n = y.numel(), count = n > 0 ? x.numel() / n : 0;
    const Layout y_layout(y.shape), x_layout(x.shape);
    if (count < 64) {
      gpu::launch(sum_by_thread<G, T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<G>(), x.as<T>(),
                  y_layout, x_layout, n, count, y.add);
    } else {
      gpu::launch(sum_by_block<G, T>, gpu::Grid(n), kElementThreads, 0, gpu::stream(), y.as<G>(), x.as<T>(), y_layout,
                  x_layout, count, y.add);
    }
  });
}

void cuda::softmax_fwd(Out y, In x) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    gpu::launch(softmax_rows<T>, row_grid(x.rows()), kRowThreads, 0, gpu::stream(), y.as<T>(), x.as<T>(), x.rows(),
                x.cols());
  });
}

void cuda::softmax_bwd(Acc dx, In dy, In y) {
  with_grad_type(y.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    gpu::launch(softmax_rows_bwd<G, T>, row_grid(y.rows()), kRowThreads, 0, gpu::stream(), dx.as<G>(), dy.as<T>(),
                y.as<T>(), y.rows(), y.cols(), dx.add);
  });
}

void cuda::swiglu_fwd(Out y, In x) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = y.numel();
    gpu::launch(swiglu<T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), x.as<T>(), y.cols(), n);
  });
}

void cuda::swiglu_bwd(Acc dx, In dy, In x) {
  with_grad_type(x.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    const int64_t n = dy.numel();
    gpu::launch(swiglu_slope<G, T>, element_grid(n), kElementThreads, 0, gpu::stream(), dx.as<G>(), dy.as<T>(),
                x.as<T>(), dy.cols(), n, dx.add);
  });
}

}  // namespace taper
