// The scale of rows of the residual stream, the anchor's gradient, and the radial part of a gradient.
#include <cmath>

#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/row_parts.h"
#include "engine/kernels/cpu/row_sums.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// dh (+)= factor * (h - mean)
template <bool kAdd, class G, class H>
void scale_row_bwd(G* dh, const H* h, Compute<H> mean, Compute<H> factor, int64_t n) {
  using C = Compute<H>;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put<kAdd>(dh[i], factor * (convert_to<C>(h[i]) - mean));
}

struct RadialPart {
  double inner = 0, h_square = 0, dh_square = 0;
};

template <class H, class G>
RadialPart radial_part(const H* h, const G* dh, int64_t n) {
  double inner = 0, h_square = 0, dh_square = 0;
#pragma omp simd reduction(+ : inner, h_square, dh_square)
  for (int64_t i = 0; i < n; ++i) {
    const double a = convert_to<double>(h[i]), b = convert_to<double>(dh[i]);
    inner += a * b;
    h_square += a * a;
    dh_square += b * b;
  }
  return {inner, h_square, dh_square};
}

// NaN wins, and stays: one among the rows is to be seen.
double greater_or_nan(double value, double so_far) { return value > so_far || std::isnan(value) ? value : so_far; }

// Three numbers of each part of the rows.
struct PartSums {
  double values[kMostParts][3] = {};

  double sum(int i) const {
    double total = 0;
    for (const auto& part : values) total += part[i];
    return total;
  }
  double greatest(int i) const {
    double result = 0;
    for (const auto& part : values) result = greater_or_nan(part[i], result);
    return result;
  }
};

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::scale_loss_fwd(Out sums, Out s, In h, NormKind kind, double eps, double target) {
  const int64_t cols = h.cols();
  PartSums parts;
  with_float_type(h.dtype, [&](auto type) {
    using H = typename decltype(type)::type;
    using C = Compute<H>;
    RowParts(h.rows(), cols).run([&](int64_t part, int64_t begin, int64_t end) {
      double* own = parts.values[part];
      for (int64_t row = begin; row < end; ++row) {
        const H* values = h.as<H>() + row * cols;
        const C mean = kind == NormKind::layer ? row_mean(values, cols) : C(0);
        const C scale = std::sqrt(row_mean_square(values, mean, cols) + static_cast<C>(eps));
        s.as<C>()[row] = scale;
        const double wide = static_cast<double>(scale);
        own[0] += wide;
        own[1] = greater_or_nan(wide, own[1]);
        own[2] += (wide - target) * (wide - target);
      }
    });
  });
  double* result = sums.as<double>();
  result[0] = parts.sum(0);
  result[1] = parts.greatest(1);
  result[2] = parts.sum(2);
}

void cpu::TAPER_ISA::scale_loss_bwd(Acc dh, In h, In s, In upstream, NormKind kind, double target, double factor) {
  if (upstream) factor *= *upstream.as<double>();
  const int64_t cols = h.cols();
  with_grad_type(h.dtype, dh.dtype, [&](auto type, auto grad_type) {
    using H = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    using C = Compute<H>;
    with_flag(dh.add, [&](auto add) {
      parallel_for(h.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const H* values = h.as<H>() + row * cols;
          const C mean = kind == NormKind::layer ? row_mean(values, cols) : C(0);
          const double scale = static_cast<double>(s.as<C>()[row]);
          const double slope = 2 * factor * (scale - target) / (scale * static_cast<double>(cols));
          scale_row_bwd<decltype(add)::value>(dh.as<G>() + row * cols, values, mean, static_cast<C>(slope), cols);
        }
      });
    });
  });
}

void cpu::TAPER_ISA::radial_sums(Out sums, In h, In dh) {
  const int64_t cols = h.cols();
  PartSums parts;
  with_float_type(h.dtype, [&](auto type) {
    with_float_type(dh.dtype, [&](auto grad_type) {
      using H = typename decltype(type)::type;
      using G = typename decltype(grad_type)::type;
      RowParts(h.rows(), cols).run([&](int64_t part, int64_t begin, int64_t end) {
        double* own = parts.values[part];
        for (int64_t row = begin; row < end; ++row) {
          const RadialPart r = radial_part(h.as<H>() + row * cols, dh.as<G>() + row * cols, cols);
          const double radial = r.h_square == 0 ? 0 : r.inner / std::sqrt(r.h_square);
          own[0] += radial;
          own[1] += std::fabs(radial);
          own[2] += std::sqrt(r.dh_square);
        }
      });
    });
  });
  for (int i = 0; i < 3; ++i) sums.as<double>()[i] = parts.sum(i);
}

}  // namespace taper
