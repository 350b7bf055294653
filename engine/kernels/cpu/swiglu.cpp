// SwiGLU: the gated activation of Llama's MLP.
#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class T>
void swiglu_row(T* y, const T* gate, const T* up, int64_t n) {
  using C = Compute<T>;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] = convert_to<T>(math::Silu::value(convert_to<C>(gate[i])) * convert_to<C>(up[i]));
  }
}

template <bool kAdd, class G, class T>
void swiglu_row_bwd(G* dgate, G* dup, const T* dy, const T* gate, const T* up, int64_t n) {
  using C = Compute<T>;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C upstream = convert_to<C>(dy[i]), g = convert_to<C>(gate[i]);
    put<kAdd>(dgate[i], upstream * convert_to<C>(up[i]) * math::Silu::slope(g));
    put<kAdd>(dup[i], upstream * math::Silu::value(g));
  }
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::swiglu_fwd(Out y, In x) {
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t cols = y.cols();
    parallel_for(y.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = x.as<T>() + 2 * row * cols;
        swiglu_row(y.as<T>() + row * cols, gate, gate + cols, cols);
      }
    });
  });
}

void cpu::TAPER_ISA::swiglu_bwd(Acc dx, In dy, In x) {
  with_grad_type(x.dtype, dx.dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    with_flag(dx.add, [&](auto add) {
      const int64_t cols = dy.cols();
      parallel_for(dy.rows(), grain_of_rows(cols), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* gate = x.as<T>() + 2 * row * cols;
          G* dgate = dx.as<G>() + 2 * row * cols;
          swiglu_row_bwd<decltype(add)::value>(dgate, dgate + cols, dy.as<T>() + row * cols, gate, gate + cols, cols);
        }
      });
    });
  });
}

}  // namespace taper
