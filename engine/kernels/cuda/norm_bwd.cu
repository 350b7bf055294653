// The tapered norm backward: a row of dy and of h is read once and held in registers. Blocks take rows in turn; each
// thread keeps the sums of its own columns over all of its rows, and the blocks' sums are added in a second stage
// (sums.h). Formulas: engine/ops/norm.cpp.
#include "engine/kernels/cuda/norm_rows.h"
#include "engine/kernels/cuda/sums.h"

namespace taper::cuda {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr unsigned kMostThreads = 512;
constexpr int64_t kMostBlocks = 256;

enum Column { kWeighted, kPlain, kUpstream, kColumnKinds };  // sums of dy h' rstd, of dy h', of dy

struct Target {
  void* data;
  bool is_bf16;
  bool add;
};

template <class H>
struct BackwardArguments {
  Target dh, dbranch;
  const void* dy;
  bool is_dy_bf16;
  const void* dsum;
  bool is_dsum_bf16;
  const H* h;
  const Compute<H>* mean;
  const Compute<H>* rstd;
  Compute<H>* parts;  // [blocks][kColumnKinds][cols], or null
  int64_t rows, cols;
  NormParameters<Compute<H>> p;
};

template <class F>
__device__ constexpr bool has_column(int kind) {
  return kind == kWeighted ? F::kNorm : kind == kPlain ? F::kScale : F::kCentres;
}

template <class H, int kWidth>
__device__ __forceinline__ void put(const Target& target, int64_t at, gpu::Pack<Compute<H>, kWidth> values) {
  if (!target.data) return;
  if (target.add) {
    const auto before = load_companion<H, kWidth>(target.data, target.is_bf16, at);
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) values[j] += before[j];
  }
  store_companion<H>(target.data, target.is_bf16, at, values);
}

// What a thread keeps of the columns beyond those in registers lives in its block's part from the first row on.
template <class C, int kWidth>
__device__ __forceinline__ void add_to_part(C* part, bool is_first, const gpu::Pack<C, kWidth>& values) {
  gpu::Pack<C, kWidth> sum = values;
  if (!is_first) {
    const auto before = gpu::load_pack<kWidth>(part);
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) sum[j] += before[j];
  }
  gpu::store_pack(part, sum);
}

// One row's scalars.
template <class C>
struct RowScalars {
  C mean, rstd;
  C weight;    // g rstd
  C scale;     // (1 - g) c
  C pull;      // mean(u n) rstd / r, the factor of h'
  C gradient;  // the mean of the gradient before centring
};

template <class F, class H, int kWidth, int kHeld>
class RowBackward {
 public:
  using C = Compute<H>;
  using Values = gpu::Pack<C, kWidth>;

  __device__ RowBackward(const BackwardArguments<H>& a, C* shared) : a_(a), shared_(shared) {
    GPU_UNROLL
    for (int kind = 0; kind < kColumnKinds; ++kind) {
      GPU_UNROLL
      for (int k = 0; k < kHeld; ++k) sums_[kind][k] = Values{};
    }
  }

  // Every thread of the block calls it, also where its row is beyond the last.
  __device__ void run(int64_t row, bool is_first) {
    const bool has_row = row < a_.rows;
    const int64_t start = row * a_.cols;
    packs_ = has_row ? a_.cols / kWidth : 0;
    for_each_pack<kHeld>(packs_, [&](int k, int64_t i) {
      if (k < kHeld) held_[k] = gpu::load_pack<kWidth>(a_.h + start + i * kWidth);
    });
    for_each_pack<kHeld>(packs_, [&](int k, int64_t i) {
      if (k < kHeld) upstream_[k] = load_companion<H, kWidth>(a_.dy, a_.is_dy_bf16, start + i * kWidth);
    });
    RowScalars<C> s{};
    if (F::kCentres && has_row) s.mean = a_.mean[row];
    if (F::kNorm && has_row) s.rstd = a_.rstd[row];
    if constexpr (F::kScale) s.scale = static_cast<C>(a_.p.rest.get()) * *a_.p.c;
    s.weight = static_cast<C>(a_.p.gate.get()) * s.rstd;
    sum_row(start, is_first, s);
    if (a_.dh.data || a_.dbranch.data) write_row(start, s);
  }

  // The block's sums of the columns in registers: those of its rows of threads, in their order.
  __device__ void write_part() {
    C* part = a_.parts + int64_t{blockIdx.x} * kColumnKinds * a_.cols;
    const int64_t slot = int64_t{threadIdx.y} * blockDim.x + threadIdx.x;
    GPU_UNROLL
    for (int kind = 0; kind < kColumnKinds; ++kind) {
      if (!has_column<F>(kind)) continue;
      GPU_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        gpu::store_pack(shared_ + slot * kWidth, sums_[kind][k]);
        __syncthreads();
        const int64_t i = threadIdx.x + int64_t{k} * blockDim.x;
        if (threadIdx.y == 0 && i < a_.cols / kWidth) {
          Values sum = sums_[kind][k];
          for (unsigned y = 1; y < blockDim.y; ++y) {
            const auto other = gpu::load_pack<kWidth>(shared_ + (int64_t{y} * blockDim.x + threadIdx.x) * kWidth);
            GPU_UNROLL
            for (int j = 0; j < kWidth; ++j) sum[j] += other[j];
          }
          gpu::store_pack(part + kind * a_.cols + i * kWidth, sum);
        }
        __syncthreads();
      }
    }
  }

 private:
  __device__ Values row_h(int k, int64_t start, int64_t i, C mean) const {
    const auto stored = k < kHeld ? held_[k] : gpu::load_pack<kWidth>(a_.h + start + i * kWidth);
    Values values;
    GPU_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      values[j] = F::kCentres ? convert_to<C>(stored[j]) - mean : convert_to<C>(stored[j]);
    }
    return values;
  }
  __device__ Values row_dy(int k, int64_t start, int64_t i) const {
    return k < kHeld ? upstream_[k] : load_companion<H, kWidth>(a_.dy, a_.is_dy_bf16, start + i * kWidth);
  }

  // gamma rstd g + gamma_tilde (1 - g) c: what dy is multiplied by, without `pull` and centring.
  __device__ Values row_factor(int64_t i, const RowScalars<C>& s) const {
    Values factor{};
    if constexpr (F::kNorm) {
      const auto gamma = gpu::load_pack<kWidth>(a_.p.gamma + i * kWidth);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) factor[j] += s.weight * gamma[j];
    }
    if constexpr (F::kScale) {
      const auto gamma_tilde = gpu::load_pack<kWidth>(a_.p.gamma_tilde + i * kWidth);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) factor[j] += s.scale * gamma_tilde[j];
    }
    return factor;
  }

  __device__ void sum_row(int64_t start, bool is_first, RowScalars<C>& s) {
    C totals[2] = {};  // of dy h' gamma, and of the gradient before centring
    for_each_pack<kHeld>(packs_, [&](int k, int64_t i) {
      const Values h = row_h(k, start, i, s.mean), dy = row_dy(k, start, i);
      Values columns[kColumnKinds];
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const C product = dy[j] * h[j];
        columns[kWeighted][j] = product * s.rstd;
        columns[kPlain][j] = product;
        columns[kUpstream][j] = dy[j];
      }
      if constexpr (F::kNorm) {
        const auto gamma = gpu::load_pack<kWidth>(a_.p.gamma + i * kWidth);
        GPU_UNROLL
        for (int j = 0; j < kWidth; ++j) totals[0] += columns[kPlain][j] * gamma[j];
      }
      if constexpr (F::kCentres) {
        const Values factor = row_factor(i, s);
        GPU_UNROLL
        for (int j = 0; j < kWidth; ++j) totals[1] += dy[j] * factor[j];
      }
      if (a_.parts) add_columns(k, i, is_first, columns);
    });
    const C n = static_cast<C>(a_.cols);
    if constexpr (F::kCentres) {
      sum_over_row(totals, shared_);
      s.gradient = totals[1] / n;
    } else if constexpr (F::kNorm) {
      C total[1] = {totals[0]};
      sum_over_row(total, shared_);
      totals[0] = total[0];
    }
    if constexpr (F::kNorm) s.pull = totals[0] * s.weight / n * s.rstd * s.rstd;
  }

  __device__ void add_columns(int k, int64_t i, bool is_first, const Values (&columns)[kColumnKinds]) {
    GPU_UNROLL
    for (int kind = 0; kind < kColumnKinds; ++kind) {
      if (!has_column<F>(kind)) continue;
      if (k < kHeld) {
        GPU_UNROLL
        for (int j = 0; j < kWidth; ++j) sums_[kind][k][j] += columns[kind][j];
      } else {
        C* part = a_.parts + (int64_t{blockIdx.x} * kColumnKinds + kind) * a_.cols;
        add_to_part(part + i * kWidth, is_first, columns[kind]);
      }
    }
  }

  __device__ void write_row(int64_t start, const RowScalars<C>& s) const {
    for_each_pack<kHeld>(packs_, [&](int k, int64_t i) {
      const int64_t at = start + i * kWidth;
      const Values dy = row_dy(k, start, i), factor = row_factor(i, s);
      Values dh{};
      if constexpr (F::kNorm) dh = row_h(k, start, i, s.mean);
      GPU_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const C pulled = F::kNorm ? dh[j] * s.pull : C(0);
        dh[j] = dy[j] * factor[j] - pulled - (F::kCentres ? s.gradient : C(0));
      }
      if (a_.dsum) {
        const auto extra = load_companion<H, kWidth>(a_.dsum, a_.is_dsum_bf16, at);
        GPU_UNROLL
        for (int j = 0; j < kWidth; ++j) dh[j] += extra[j];
      }
      put<H>(a_.dh, at, dh);
      put<H>(a_.dbranch, at, dh);
    });
  }

  const BackwardArguments<H>& a_;
  C* shared_;
  int64_t packs_ = 0;  // of the present row
  gpu::Pack<H, kWidth> held_[kHeld];
  Values upstream_[kHeld];
  Values sums_[kColumnKinds][kHeld];
};

template <class F, class H, int kWidth>
__global__ void __launch_bounds__(kMostThreads) norm_backward(BackwardArguments<H> a) {
  RowBackward<F, H, kWidth, held_packs<H, kWidth>()> rows(a, gpu::dyn_shared<Compute<H>>());
  const int64_t step = int64_t{gridDim.x} * blockDim.y, begin = int64_t{blockIdx.x} * blockDim.y;
  for (int64_t row = begin; row < a.rows; row += step) rows.run(row + threadIdx.y, row == begin);
  if (a.parts) rows.write_part();
}

template <class F, class H, int kWidth>
void launch_backward(const BackwardArguments<H>& a, int64_t blocks, dim3 threads) {
  using C = Compute<H>;
  const size_t sums = size_t{threads.x} * threads.y * kWidth, reductions = 2 * gpu::kWarp;
  const size_t shared = (sums > reductions ? sums : reductions) * sizeof(C);
  gpu::launch(norm_backward<F, H, kWidth>, gpu::Grid(blocks), threads, shared, gpu::stream(), a);
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::taper_norm_bwd(Acc dh, Acc dbranch, Acc dgamma, Acc dbeta, Acc dgamma_tilde, Acc dbeta_tilde, In dy, In dsum,
                          In h, In mean, In rstd, In gamma, In gamma_tilde, In c, NormOptions options) {
  const int64_t rows = h.rows(), cols = h.cols(), stride = kColumnKinds * cols;
  const bool has_columns = dgamma || dbeta || dgamma_tilde || dbeta_tilde;
  const auto target = [](Acc t) { return Target{t.data, t.dtype == Dtype::bf16, t.add}; };
  with_float_type(h.dtype, [&](auto type) {
    using H = typename decltype(type)::type;
    using C = Compute<H>;
    constexpr int kPackWidth = 16 / static_cast<int>(sizeof(H));
    const bool has_packs = fit_packs(kPackWidth, cols, {dh, dbranch, dy, dsum, h, gamma, gamma_tilde});
    const int held = has_packs ? held_packs<H, kPackWidth>() : held_packs<H, 1>();
    const dim3 threads = threads_for_rows(has_packs ? cols / kPackWidth : cols, held, kBlockThreads, kMostThreads);
    const int64_t blocks = gpu::blocks_for(rows, threads.y, kMostBlocks);
    const gpu::Scratch<C> parts(has_columns ? blocks * stride : 0);
    const BackwardArguments<H> a{target(dh),
                                 target(dbranch),
                                 dy.data,
                                 dy.dtype == Dtype::bf16,
                                 dsum.data,
                                 dsum.dtype == Dtype::bf16,
                                 h.as<H>(),
                                 mean.as<C>(),
                                 rstd.as<C>(),
                                 has_columns ? parts.data() : nullptr,
                                 rows,
                                 cols,
                                 norm_parameters<C>(gamma, {}, gamma_tilde, {}, c, options)};
    with_norm_form(options, [&](auto form) {
      using F = decltype(form);
      if (has_packs) return launch_backward<F, H, kPackWidth>(a, blocks, threads);
      launch_backward<F, H, 1>(a, blocks, threads);
    });
    if (!has_columns) return;
    const C* sums = parts.data();
    const C *weighted = options.gate > 0 ? sums : nullptr, *plain = options.gate < 1 ? sums + cols : nullptr;
    const C *norm_dy = options.gate > 0 ? sums + 2 * cols : nullptr, *dy_sum = sums + 2 * cols;
    ColumnSums targets{std::is_same_v<C, double>, blocks, stride, cols};
    targets.add(dgamma, weighted, gate_factor(options));
    targets.add(dgamma_tilde, plain, rest_factor(options), options.gate < 1 ? c.data : nullptr);
    targets.add(dbeta, norm_dy, gate_factor(options));
    targets.add(dbeta_tilde, options.gate < 1 ? dy_sum : nullptr, rest_factor(options));
    targets.run();
  });
}

}  // namespace taper
