// The tapered norm, forward, a row at a time; Y is the result's type.
#include <cmath>

#include "engine/kernels/cpu/norm_rows.h"
#include "engine/kernels/cpu/row_parts.h"
#include "engine/kernels/cpu/row_sums.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// sum = x + branch; returns the sum of its entries (layer) or of their squares (rms, where a statistic is wanted).
template <class F, class H, class B>
Compute<H> add_row(H* sum, const H* x, const B* branch, int64_t n) {
  using C = Compute<H>;
  C total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) {
    const H stored = convert_to<H>(convert_to<C>(x[i]) + convert_to<C>(branch[i]));
    const C value = convert_to<C>(stored);
    if constexpr (F::kCentres) total += value;
    if constexpr (!F::kCentres && F::kNorm) total += value * value;
    sum[i] = stored;
  }
  return total;
}

// |h' gamma|^2
template <class H>
double weighted_square(const H* h, Compute<H> mean, const Compute<H>* gamma, int64_t n) {
  using C = Compute<H>;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const C value = (convert_to<C>(h[i]) - mean) * gamma[i];
    sum += value * value;
  }
  return static_cast<double>(sum);
}

template <class F, class Y, class H, class C>
void norm_row(Y* y, const H* h, C mean, C rstd, const Parameters<C>& p, int64_t n) {
  // Copies, since a store to y could change what the reference shows.
  const C *const gamma = p.gamma, *const beta = p.beta, *const gamma_tilde = p.gamma_tilde;
  const C* const beta_tilde = p.beta_tilde;
  const C gate = p.gate, rest = p.rest, scale = p.scale, weight = gate * rstd;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C value = F::kCentres ? convert_to<C>(h[i]) - mean : convert_to<C>(h[i]);
    C result = 0;
    if constexpr (F::kNorm && F::kScale) {
      result = value * (weight * gamma[i] + scale * gamma_tilde[i]);
    } else if constexpr (F::kNorm) {
      result = value * rstd * gamma[i];
    } else {
      result = value * (scale * gamma_tilde[i]);
    }
    if constexpr (F::kCentres && F::kNorm && F::kScale) {
      result += gate * beta[i] + rest * beta_tilde[i];
    } else if constexpr (F::kCentres && F::kNorm) {
      result += beta[i];
    } else if constexpr (F::kCentres) {
      result += beta_tilde[i];
    }
    y[i] = convert_to<Y>(result);
  }
}

struct ForwardViews {
  View y, sum, mean, rstd, calibration;
  ConstView x, branch;
};

// Rows [begin, end); adds to calibration[0] and [1] where it is asked for.
template <class F, class H, class Y>
void forward_rows(const ForwardViews& v, const Parameters<Compute<H>>& p, double* calibration, int64_t begin,
                  int64_t end) {
  using C = Compute<H>;
  const int64_t n = v.x.cols();
  for (int64_t row = begin; row < end; ++row) {
    const H* h = v.x.as<H>() + row * n;
    C total = 0;
    if (v.branch) {
      H* sum = v.sum.as<H>() + row * n;
      with_companion<H>(v.branch.dtype, [&](auto type) {
        using B = typename decltype(type)::type;
        total = add_row<F>(sum, h, v.branch.as<B>() + row * n, n);
      });
      h = sum;
    }
    C mean = 0, rstd = 0;
    if constexpr (F::kCentres) mean = v.branch ? total / static_cast<C>(n) : row_mean(h, n);
    if (F::kNorm || calibration) {
      const bool has_square = v.branch && F::kNorm && !F::kCentres;
      const C square = has_square ? total / static_cast<C>(n) : row_mean_square(h, mean, n);
      rstd = C(1) / std::sqrt(square + p.eps);
    }
    if (F::kCentres && v.mean) v.mean.as<C>()[row] = mean;
    if (F::kNorm && v.rstd) v.rstd.as<C>()[row] = rstd;
    if (calibration) {
      const double square = weighted_square(h, mean, p.gamma, n);
      calibration[0] += square * static_cast<double>(rstd);
      calibration[1] += square;
    }
    norm_row<F>(v.y.as<Y>() + row * n, h, mean, rstd, p, n);
  }
}

template <class F, class H, class Y>
void forward(const ForwardViews& v, const Parameters<Compute<H>>& p) {
  const int64_t rows = v.x.rows(), cols = v.x.cols();
  if (!v.calibration) {
    parallel_for(rows, grain_of_rows(cols),
                 [&](int64_t begin, int64_t end) { forward_rows<F, H, Y>(v, p, nullptr, begin, end); });
    return;
  }
  double sums[kMostParts][2] = {};
  const RowParts parts(rows, cols);
  parts.run([&](int64_t part, int64_t begin, int64_t end) { forward_rows<F, H, Y>(v, p, sums[part], begin, end); });
  double* result = v.calibration.as<double>();
  result[0] = result[1] = 0;
  for (const auto& sum : sums) {
    result[0] += sum[0];
    result[1] += sum[1];
  }
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::taper_norm_fwd(Out y, Out sum, Out mean, Out rstd, Out calibration, In x, In branch, In gamma,
                                    In beta, In gamma_tilde, In beta_tilde, In c, NormOptions options) {
  const ForwardViews views{y, sum, mean, rstd, calibration, x, branch};
  with_form_and_types(options, x.dtype, y.dtype, [&](auto form, auto type, auto result_type) {
    using F = decltype(form);
    using H = typename decltype(type)::type;
    using Y = typename decltype(result_type)::type;
    forward<F, H, Y>(views, parameters_of<F, Compute<H>>(gamma, beta, gamma_tilde, beta_tilde, c, options));
  });
}

}  // namespace taper
