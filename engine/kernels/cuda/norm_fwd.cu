// The tapered norm forward: a row is read once, held in registers while its statistics are summed, and written once.
// Formulas: engine/ops/norm.cpp.
#include <cmath>

#include "engine/kernels/cuda/norm_rows.h"
#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {
namespace {

constexpr unsigned kBlockThreads = 128;  // at least: several short rows share a block
constexpr unsigned kMostThreads = 512;

template <class H>
struct ForwardArguments {
  const H* x;
  const void* branch;
  bool is_branch_bf16;
  H* sum;
  void* y;
  bool is_y_bf16;
  Compute<H>* mean;
  Compute<H>* rstd;
  double* calibration;  // [rows][2]
  int64_t rows, cols;
  NormParameters<Compute<H>> p;
};

// sum = x + branch in the hands of one thread; where there is no branch, x.
template <class H, int kWidth, int kHeld>
__device__ void read_row(gpu::Pack<H, kWidth> (&held)[kHeld], const ForwardArguments<H>& a, int64_t start,
                         int64_t packs) {
  using C = Compute<H>;
  using Values = gpu::Pack<C, kWidth>;
  for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
    if (k < kHeld) held[k] = gpu::load_pack<kWidth>(a.x + start + i * kWidth);
  });
  if (!a.branch) return;
  // All loads before the first store, which could be to their memory for all that the compiler knows.
  Values added[kHeld];
  for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
    if (k < kHeld) added[k] = load_companion<H, kWidth>(a.branch, a.is_branch_bf16, start + i * kWidth);
  });
  for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
    const int64_t at = start + i * kWidth;
    gpu::Pack<H, kWidth> h = k < kHeld ? held[k] : gpu::load_pack<kWidth>(a.x + at);
    const Values extra = k < kHeld ? added[k] : load_companion<H, kWidth>(a.branch, a.is_branch_bf16, at);
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) h[j] = convert_to<H>(convert_to<C>(h[j]) + extra[j]);
    gpu::store_pack(a.sum + at, h);
    if (k < kHeld) held[k] = h;
  });
}

template <class C, int kWidth>
__device__ __forceinline__ void add_scaled(gpu::Pack<C, kWidth>& sum, C factor, const C* from) {
  const auto values = gpu::load_pack<kWidth>(from);
  GPU_UNROLL
  for (int j = 0; j < kWidth; ++j) sum[j] += factor * values[j];
}

template <class F, class H, int kWidth>
__global__ void __launch_bounds__(kMostThreads) norm_forward(ForwardArguments<H> a) {
  using C = Compute<H>;
  using Values = gpu::Pack<C, kWidth>;
  constexpr int kHeld = held_packs<H, kWidth>();
  GPU_SHARED(C, shared, gpu::kWarp);
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool has_row = row < a.rows;
  const int64_t start = row * a.cols, packs = has_row ? a.cols / kWidth : 0;
  const H* h_row = a.branch ? a.sum : a.x;
  gpu::Pack<H, kWidth> held[kHeld];
  read_row(held, a, start, packs);
  const auto value = [&](int k, int64_t i) {
    return k < kHeld ? held[k] : gpu::load_pack<kWidth>(h_row + start + i * kWidth);
  };

  C mean = 0;
  if constexpr (F::kCentres) {
    C total[1] = {};
    for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
      const auto h = value(k, i);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) total[0] += convert_to<C>(h[j]);
    });
    sum_over_row(total, shared);
    mean = total[0] / static_cast<C>(a.cols);
  }
  C rstd = 0;
  if (F::kNorm || a.calibration) {
    C squares[1] = {};
    for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
      const auto h = value(k, i);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const C centred = convert_to<C>(h[j]) - mean;
        squares[0] += centred * centred;
      }
    });
    sum_over_row(squares, shared);
    rstd = C(1) / std::sqrt(squares[0] / static_cast<C>(a.cols) + a.p.eps);
  }
  if (a.calibration) {
    C weighted[1] = {};
    for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
      const auto h = value(k, i);
      const Values gamma = gpu::load_pack<kWidth>(a.p.gamma + i * kWidth);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const C product = (convert_to<C>(h[j]) - mean) * gamma[j];
        weighted[0] += product * product;
      }
    });
    sum_over_row(weighted, shared);
    if (threadIdx.x == 0 && has_row) {
      a.calibration[2 * row] = static_cast<double>(weighted[0]) * static_cast<double>(rstd);
      a.calibration[2 * row + 1] = static_cast<double>(weighted[0]);
    }
  }
  if (threadIdx.x == 0 && has_row) {
    if (F::kCentres && a.mean) a.mean[row] = mean;
    if (F::kNorm && a.rstd) a.rstd[row] = rstd;
  }

  const C gate = static_cast<C>(a.p.gate.get()), rest = static_cast<C>(a.p.rest.get());
  const C scale = F::kScale ? rest * *a.p.c : C(0), weight = gate * rstd;
  for_each_pack<kHeld>(packs, [&](int k, int64_t i) {
    const auto h = value(k, i);
    Values factor{}, offset{}, y;
    if constexpr (F::kNorm) add_scaled(factor, weight, a.p.gamma + i * kWidth);
    if constexpr (F::kScale) add_scaled(factor, scale, a.p.gamma_tilde + i * kWidth);
    if constexpr (F::kCentres && F::kNorm) add_scaled(offset, gate, a.p.beta + i * kWidth);
    if constexpr (F::kCentres && F::kScale) add_scaled(offset, rest, a.p.beta_tilde + i * kWidth);
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) y[j] = (convert_to<C>(h[j]) - mean) * factor[j] + offset[j];
    store_companion<H>(a.y, a.is_y_bf16, start + i * kWidth, y);
  });
}

template <class F, class H, int kWidth>
void launch_forward(const ForwardArguments<H>& a) {
  const dim3 threads = threads_for_rows(a.cols / kWidth, held_packs<H, kWidth>(), kBlockThreads, kMostThreads);
  gpu::launch(norm_forward<F, H, kWidth>, gpu::Grid(gpu::blocks_for(a.rows, threads.y)), threads, 0, gpu::stream(), a);
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::taper_norm_fwd(Out y, Out sum, Out mean, Out rstd, Out calibration, In x, In branch, In gamma, In beta,
                          In gamma_tilde, In beta_tilde, In c, NormOptions options) {
  const int64_t rows = x.rows(), cols = x.cols();
  const gpu::Scratch<double> row_sums(calibration ? 2 * rows : 0);
  with_float_type(x.dtype, [&](auto type) {
    using H = typename decltype(type)::type;
    using C = Compute<H>;
    const ForwardArguments<H> a{
        x.as<H>(),    branch.data,  branch.dtype == Dtype::bf16,
        sum.as<H>(),  y.data,       y.dtype == Dtype::bf16,
        mean.as<C>(), rstd.as<C>(), calibration ? row_sums.data() : nullptr,
        rows,         cols,         norm_parameters<C>(gamma, beta, gamma_tilde, beta_tilde, c, options)};
    with_norm_form(options, [&](auto form) {
      using F = decltype(form);
      constexpr int kWidth = 16 / static_cast<int>(sizeof(H));
      const bool has_packs = fit_packs(kWidth, cols, {y, sum, x, branch, gamma, beta, gamma_tilde, beta_tilde});
      if (has_packs) return launch_forward<F, H, kWidth>(a);
      launch_forward<F, H, 1>(a);
    });
  });
  double* sums = calibration.as<double>();
  if (calibration) sum_pairs(sums, sums + 1, 1, row_sums.data(), rows);
}

}  // namespace taper
