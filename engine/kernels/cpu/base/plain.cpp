// The plain ops: pointwise functions, broadcasting arithmetic, sums over dimensions, softmax. Tests and composites use
// them, no step of training or decoding, so one instruction set is enough.
#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/layout.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class F, class T>
void map(T* y, const T* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert_to<T>(F::value(convert_to<Compute<T>>(x[i])));
}

template <class F, bool kAdd, class G, class T>
void map_slope(G* dx, const T* dy, const T* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    put<kAdd>(dx[i], convert_to<Compute<T>>(dy[i]) * F::slope(convert_to<Compute<T>>(x[i])));
  }
}

template <class F, class T>
void combine(T* y, const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t n) {
  using C = Compute<T>;
  if (a_step == 1 && b_step == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert_to<T>(F::value(convert_to<C>(a[i]), convert_to<C>(b[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      y[i] = convert_to<T>(F::value(convert_to<C>(a[i * a_step]), convert_to<C>(b[i * b_step])));
    }
  }
}

template <class T>
double sum_of(const T* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += convert_to<double>(x[i]);
  return sum;
}

// Rows of x that row `row` of y sums up: body(offset in x) for each, in order.
template <class Body>
void for_summed_rows(const Layout& y, const Layout& x, int64_t row, Body&& body) {
  int64_t first = 0, counts[kMaxRank - 1];
  for (int i = kMaxRank - 1; i-- > 0;) {
    first += row % y.dims[i] * x.strides[i];
    row /= y.dims[i];
    counts[i] = y.dims[i] == 1 ? x.dims[i] : 1;
  }
  for (int64_t i = 0; i < counts[0]; ++i) {
    for (int64_t j = 0; j < counts[1]; ++j) {
      for (int64_t k = 0; k < counts[2]; ++k) body(first + i * x.strides[0] + j * x.strides[1] + k * x.strides[2]);
    }
  }
}

// Sums of the columns [begin, end) of the rows of x that belong to a row of y.
constexpr int64_t kColumnBlock = 64;

template <bool kAdd, class G, class T>
void sum_columns(G* y_row, const T* x, const Layout& y, const Layout& x_layout, int64_t row, int64_t begin,
                 int64_t end) {
  double sums[kColumnBlock] = {};
  for_summed_rows(y, x_layout, row, [&](int64_t offset) {
    const T* values = x + offset + begin;
#pragma omp simd
    for (int64_t i = 0; i < end - begin; ++i) sums[i] += convert_to<double>(values[i]);
  });
  for (int64_t i = 0; i < end - begin; ++i) put<kAdd>(y_row[begin + i], static_cast<Compute<G>>(sums[i]));
}

template <bool kAdd, class G, class T>
void sum_to_layout(G* out, const T* in, const Layout& y, const Layout& x) {
  const int64_t rows = y.dims[0] * y.dims[1] * y.dims[2];
  const int64_t cols = y.dims[3];
  if (cols == 1) {
    parallel_for(rows, grain_of_rows(x.dims[3]), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        double sum = 0;
        for_summed_rows(y, x, row, [&](int64_t offset) { sum += sum_of(in + offset, x.dims[3]); });
        put<kAdd>(out[row], static_cast<Compute<G>>(sum));
      }
    });
    return;
  }
  const int64_t blocks = (cols + kColumnBlock - 1) / kColumnBlock;
  parallel_for(rows * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / blocks, first = i % blocks * kColumnBlock;
      const int64_t last = first + kColumnBlock < cols ? first + kColumnBlock : cols;
      sum_columns<kAdd>(out + row * cols, in, y, x, row, first, last);
    }
  });
}

template <class T>
void softmax_row(T* y, const T* x, int64_t n) {
  using C = Compute<T>;
  C greatest = convert_to<C>(x[0]);
#pragma omp simd reduction(max : greatest)
  for (int64_t i = 0; i < n; ++i) {
    const C value = convert_to<C>(x[i]);
    greatest = value > greatest ? value : greatest;
  }
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += math::exp(convert_to<C>(x[i]) - greatest);
  const C factor = C(1) / sum;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert_to<T>(math::exp(convert_to<C>(x[i]) - greatest) * factor);
}

template <bool kAdd, class G, class T>
void softmax_row_bwd(G* dx, const T* dy, const T* y, int64_t n) {
  using C = Compute<T>;
  C mean = 0;
#pragma omp simd reduction(+ : mean)
  for (int64_t i = 0; i < n; ++i) mean += convert_to<C>(dy[i]) * convert_to<C>(y[i]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put<kAdd>(dx[i], convert_to<C>(y[i]) * (convert_to<C>(dy[i]) - mean));
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::unary_fwd(Out y, In x, Unary function) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(function, [&](auto f) {
      parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        map<decltype(f)>(y.as<T>() + begin, x.as<T>() + begin, end - begin);
      });
    });
  });
}

void cpu::TAPER_ISA::unary_bwd(Acc dx, In dy, In x, Unary function) {
  with_grad_type(x.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    math::with_function(function, [&](auto f) {
      with_flag(dx.add, [&](auto add) {
        parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
          map_slope<decltype(f), decltype(add)::value>(dx.as<G>() + begin, dy.as<T>() + begin, x.as<T>() + begin,
                                                       end - begin);
        });
      });
    });
  });
}

void cpu::TAPER_ISA::binary_fwd(Out y, In a, In b, Binary function) {
  with_float_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(function, [&](auto f) {
      using F = decltype(f);
      if (a.shape == b.shape) {
        parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
          combine<F>(y.as<T>() + begin, a.as<T>() + begin, 1, b.as<T>() + begin, 1, end - begin);
        });
        return;
      }
      const Layout whole(y.shape), from_a(a.shape), from_b(b.shape);
      const int64_t cols = whole.dims[kMaxRank - 1];
      parallel_for(y.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          combine<F>(y.as<T>() + row * cols, a.as<T>() + from_a.offset_of_row(whole, row), from_a.strides[kMaxRank - 1],
                     b.as<T>() + from_b.offset_of_row(whole, row), from_b.strides[kMaxRank - 1], cols);
        }
      });
    });
  });
}

void cpu::TAPER_ISA::sum_to(Acc y, In x) {
  with_grad_type(x.dtype, y.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    with_flag(y.add, [&](auto add) {
      sum_to_layout<decltype(add)::value>(y.as<G>(), x.as<T>(), Layout(y.shape), Layout(x.shape));
    });
  });
}

void cpu::TAPER_ISA::softmax_fwd(Out y, In x) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t cols = x.cols();
    parallel_for(x.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) softmax_row(y.as<T>() + row * cols, x.as<T>() + row * cols, cols);
    });
  });
}

void cpu::TAPER_ISA::softmax_bwd(Acc dx, In dy, In y) {
  with_grad_type(y.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    with_flag(dx.add, [&](auto add) {
      const int64_t cols = y.cols();
      parallel_for(y.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * cols; at < end * cols; at += cols) {
          softmax_row_bwd<decltype(add)::value>(dx.as<G>() + at, dy.as<T>() + at, y.as<T>() + at, cols);
        }
      });
    });
  });
}

}  // namespace taper
