#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

template <class T>
__global__ void fill_all(T* y, T value, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) y[i] = value;
}

template <class To, class From>
__global__ void convert_all(To* y, const From* x, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) y[i] = convert_to<To>(x[i]);
}

template <class C, class To, class From>
__global__ void add_all(To* y, const From* x, C factor, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    y[i] = convert_to<To>(convert_to<C>(y[i]) + factor * convert_to<C>(x[i]));
  }
}

template <class T>
__global__ void scale_all(T* y, Compute<T> factor, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    y[i] = convert_to<T>(convert_to<Compute<T>>(y[i]) * factor);
  }
}

template <class T>
__global__ void scale_all_by(T* y, const double* factor, int64_t n) {
  const double by = *factor;
  if (by == 1) return;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    y[i] = convert_to<T>(convert_to<Compute<T>>(y[i]) * static_cast<Compute<T>>(by));
  }
}

// One partial sum a block, then one block for the sum of these: the order depends on n alone.
constexpr int64_t kSumBlocks = 256;

template <class T>
__global__ void sum_squares_parts(double* parts, const T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const double value = convert_to<double>(x[i]);
    sum += value * value;
  }
  sum = gpu::block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void sum_parts(double* result, const double* parts, int64_t n) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += parts[i];
  sum = gpu::block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::fill(Out y, double value) {
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = y.numel();
    gpu::launch(fill_all<T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), convert_to<T>(value), n);
  });
}

void cuda::convert(Out y, In x) {
  with_type(y.dtype, [&](auto to) {
    with_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      const int64_t n = x.numel();
      gpu::launch(convert_all<To, From>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<To>(), x.as<From>(),
                  n);
    });
  });
}

void cuda::add_to(Out y, In x, double factor) {
  with_float_type(y.dtype, [&](auto to) {
    with_float_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      using C = decltype(Compute<To>() + Compute<From>());
      const int64_t n = x.numel();
      gpu::launch(add_all<C, To, From>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<To>(), x.as<From>(),
                  factor, n);
    });
  });
}

void cuda::scale_by(Out y, double factor) {
  with_float_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = y.numel();
    gpu::launch(scale_all<T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), factor, n);
  });
}

void cuda::scale_by_value(Out y, In factor) {
  with_float_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = y.numel();
    gpu::launch(scale_all_by<T>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<T>(), factor.as<double>(), n);
  });
}

void cuda::sum_squares(Out result, In x) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t n = x.numel(), blocks = gpu::blocks_for(n, kElementThreads, kSumBlocks);
    const gpu::Scratch<double> parts(blocks);
    gpu::launch(sum_squares_parts<T>, gpu::Grid(blocks), kElementThreads, 0, gpu::stream(), parts.data(), x.as<T>(), n);
    gpu::launch(sum_parts, gpu::Grid(1), kElementThreads, 0, gpu::stream(), result.as<double>(), parts.data(), blocks);
  });
}

}  // namespace taper
