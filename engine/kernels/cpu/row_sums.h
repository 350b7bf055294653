// Sums over one row, in the type that it is computed in.
#pragma once

#include "engine/kernels/cpu/element.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class T>
Compute<T> row_mean(const T* x, int64_t n) {
  using C = Compute<T>;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += convert_to<C>(x[i]);
  return sum / static_cast<C>(n);
}

// mean((x - mean)^2)
template <class T>
Compute<T> row_mean_square(const T* x, Compute<T> mean, int64_t n) {
  using C = Compute<T>;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const C value = convert_to<C>(x[i]) - mean;
    sum += value * value;
  }
  return sum / static_cast<C>(n);
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
