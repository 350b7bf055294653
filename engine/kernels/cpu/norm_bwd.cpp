// The tapered norm, backward, a row at a time; D is the type of the gradient from above.
#include "engine/kernels/cpu/norm_rows.h"
#include "engine/kernels/cpu/row_parts.h"
#include "engine/kernels/cpu/scratch.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Where the sums over columns of one part gather. Those of no use stay null.
template <class C>
struct ColumnSums {
  C* weighted = nullptr;  // sum of dy h' rstd
  C* plain = nullptr;     // sum of dy h'
  C* dy = nullptr;        // sum of dy
};

// Means over a row that its gradient needs: of u n (u = g gamma dy, n = h' rstd), and of the gradient before centring.
template <class C>
struct RowMeans {
  C un = 0;
  C gradient = 0;
};

template <class F, bool kColumns, class D, class H, class C>
RowMeans<C> row_means(const D* dy, const H* h, C mean, C rstd, const Parameters<C>& p, ColumnSums<C> sums, int64_t n) {
  const C *const gamma = p.gamma, *const gamma_tilde = p.gamma_tilde;
  C *const weighted = sums.weighted, *const plain = sums.plain, *const dy_sum = sums.dy;
  const C scale = p.scale, weight = p.gate * rstd;
  C un = 0, gradient = 0;
#pragma omp simd reduction(+ : un, gradient)
  for (int64_t i = 0; i < n; ++i) {
    const C upstream = convert_to<C>(dy[i]);
    const C value = F::kCentres ? convert_to<C>(h[i]) - mean : convert_to<C>(h[i]);
    const C product = upstream * value;
    if constexpr (F::kNorm) un += product * gamma[i];
    if constexpr (F::kCentres && F::kNorm) gradient += upstream * (weight * gamma[i]);
    if constexpr (F::kCentres && F::kScale) gradient += upstream * (scale * gamma_tilde[i]);
    if constexpr (kColumns) {
      if constexpr (F::kNorm) weighted[i] += product * rstd;
      if constexpr (F::kScale) plain[i] += product;
      if constexpr (F::kCentres) dy_sum[i] += upstream;
    }
  }
  return {un * weight / static_cast<C>(n), gradient / static_cast<C>(n)};
}

template <class F, class D, class H, class C>
void row_gradient(C* dh, const D* dy, const H* h, C mean, C rstd, const Parameters<C>& p, RowMeans<C> means,
                  int64_t n) {
  const C *const gamma = p.gamma, *const gamma_tilde = p.gamma_tilde;
  const C scale = p.scale, weight = p.gate * rstd, pull = means.un * rstd * rstd, mean_gradient = means.gradient;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C upstream = convert_to<C>(dy[i]);
    C result = 0;
    if constexpr (F::kNorm) {
      const C value = F::kCentres ? convert_to<C>(h[i]) - mean : convert_to<C>(h[i]);
      result = upstream * (weight * gamma[i]) - value * pull;
    }
    if constexpr (F::kScale) result += upstream * (scale * gamma_tilde[i]);
    if constexpr (F::kCentres) result -= mean_gradient;
    dh[i] = result;
  }
}

template <class C, class T>
__attribute__((noinline)) void add_to_row(C* row, const T* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) row[i] += convert_to<C>(x[i]);
}

template <bool kAdd, class G, class C>
void put_row(G* target, const C* row, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put<kAdd>(target[i], row[i]);
}

// A finished row of gradients into f64, f32 or bf16 memory. Not inlined: each form of the backward would repeat it.
template <class C>
__attribute__((noinline)) void put_row(Acc target, int64_t at, const C* row, int64_t n) {
  with_flag(target.add, [&](auto add) {
    if constexpr (std::is_same_v<C, double>) {
      put_row<decltype(add)::value>(target.as<double>() + at, row, n);
    } else if (target.dtype == Dtype::bf16) {
      put_row<decltype(add)::value>(target.as<bf16>() + at, row, n);
    } else {
      put_row<decltype(add)::value>(target.as<float>() + at, row, n);
    }
  });
}

// target = factor * (the parts' sums), or += it; zeros where there are none.
template <class C>
void put_column_sums(Acc target, const C* parts, int64_t stride, int64_t count, C factor, int64_t cols) {
  if (!target) return;
  with_flag(target.add, [&](auto add) {
    constexpr bool kAdd = decltype(add)::value;
    C* out = target.as<C>();
    for (int64_t i = 0; i < cols; ++i) {
      double sum = 0;
      for (int64_t part = 0; parts && part < count; ++part) sum += static_cast<double>(parts[part * stride + i]);
      put<kAdd>(out[i], static_cast<C>(static_cast<double>(factor) * sum));
    }
  });
}

struct BackwardViews {
  Accumulator dh, dbranch, dgamma, dbeta, dgamma_tilde, dbeta_tilde;
  ConstView dy, dsum, h, mean, rstd;
};

template <class F, bool kColumns, class H, class D>
void backward_rows(const BackwardViews& v, const Parameters<Compute<H>>& p, ColumnSums<Compute<H>> sums,
                   Compute<H>* spare_row, int64_t begin, int64_t end) {
  using C = Compute<H>;
  const int64_t n = v.h.cols();
  const bool is_row_in_place = v.dh && !v.dh.add && v.dh.dtype == DtypeOf<C>::value;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * n;
    const H* h = v.h.as<H>() + at;
    const D* dy = v.dy.as<D>() + at;
    const C mean = F::kCentres ? v.mean.as<C>()[row] : C(0);
    const C rstd = F::kNorm ? v.rstd.as<C>()[row] : C(0);
    const RowMeans<C> means = row_means<F, kColumns>(dy, h, mean, rstd, p, sums, n);
    if (!v.dh && !v.dbranch) continue;
    C* dh = is_row_in_place ? v.dh.as<C>() + at : spare_row;
    row_gradient<F>(dh, dy, h, mean, rstd, p, means, n);
    if (v.dsum)
      with_companion<H>(v.dsum.dtype,
                        [&](auto type) { add_to_row(dh, v.dsum.as<typename decltype(type)::type>() + at, n); });
    if (v.dh && !is_row_in_place) put_row(v.dh, at, dh, n);
    if (v.dbranch) put_row(v.dbranch, at, dh, n);
  }
}

template <class F, class H, class D>
void backward(const BackwardViews& v, const Parameters<Compute<H>>& p) {
  using C = Compute<H>;
  const int64_t cols = v.h.cols();
  const RowParts parts(v.h.rows(), cols);
  const bool has_columns = v.dgamma || v.dbeta || v.dgamma_tilde || v.dbeta_tilde;
  // Of each part: three rows of column sums and one for a gradient on its way.
  const int64_t stride = 4 * cols;
  const Scratch<C> scratch(parts.count * stride);
  parts.run([&](int64_t part, int64_t begin, int64_t end) {
    C* base = scratch.get() + part * stride;
    const ColumnSums<C> sums{base, base + cols, base + 2 * cols};
    for (int64_t i = 0; has_columns && i < 3 * cols; ++i) base[i] = 0;
    with_flag(has_columns, [&](auto columns) {
      backward_rows<F, decltype(columns)::value, H, D>(v, p, sums, base + 3 * cols, begin, end);
    });
  });
  const C* weighted = F::kNorm ? scratch.get() : nullptr;
  const C* plain = F::kScale && scratch.get() ? scratch.get() + cols : nullptr;
  const C* dy = scratch.get() ? scratch.get() + 2 * cols : nullptr;
  put_column_sums(v.dgamma, weighted, stride, parts.count, p.gate, cols);
  put_column_sums(v.dgamma_tilde, plain, stride, parts.count, p.scale, cols);
  put_column_sums(v.dbeta, F::kNorm ? dy : nullptr, stride, parts.count, p.gate, cols);
  put_column_sums(v.dbeta_tilde, F::kScale ? dy : nullptr, stride, parts.count, p.rest, cols);
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::taper_norm_bwd(Acc dh, Acc dbranch, Acc dgamma, Acc dbeta, Acc dgamma_tilde, Acc dbeta_tilde,
                                    In dy, In dsum, In h, In mean, In rstd, In gamma, In gamma_tilde, In c,
                                    NormOptions options) {
  const BackwardViews views{dh, dbranch, dgamma, dbeta, dgamma_tilde, dbeta_tilde, dy, dsum, h, mean, rstd};
  with_form_and_types(options, h.dtype, dy.dtype, [&](auto form, auto type, auto upstream_type) {
    using F = decltype(form);
    using H = typename decltype(type)::type;
    using D = typename decltype(upstream_type)::type;
    backward<F, H, D>(views, parameters_of<F, Compute<H>>(gamma, {}, gamma_tilde, {}, c, options));
  });
}

}  // namespace taper
