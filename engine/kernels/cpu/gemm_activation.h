// The activation that follows a product.
#pragma once

#include "engine/kernels/cpu/element.h"
#include "engine/kernels/gemm.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// activated = act(c), on the calling thread.
void activate(const Gemm& g) {
  with_float_type(g.c_dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    math::with_function(g.act, [&](auto function) {
      for (int64_t row = 0; row < g.m; ++row) {
        const T* c = static_cast<const T*>(g.c) + row * g.c_stride;
        T* y = static_cast<T*>(g.activated) + row * g.c_stride;
#pragma omp simd
        for (int64_t i = 0; i < g.n; ++i) {
          y[i] = convert_to<T>(decltype(function)::value(convert_to<Compute<T>>(c[i])));
        }
      }
    });
  });
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
