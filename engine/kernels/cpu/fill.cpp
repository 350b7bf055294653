#include <cstring>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// A sum is cut into this many parts whatever the number of threads, so that its bits do not depend on them.
constexpr int64_t kSumParts = 256;

template <class T>
double sum_squares_of(const T* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double value = convert_to<double>(x[i]);
    sum += value * value;
  }
  return sum;
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::fill(Out y, double value) {
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* data = y.as<T>();
    const T element = convert_to<T>(value);
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = element;
    });
  });
}

void cpu::TAPER_ISA::convert(Out y, In x) {
  if (y.dtype == x.dtype) {
    const int64_t size = size_of(x.dtype);
    parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(y.as<char>() + begin * size, x.as<char>() + begin * size, static_cast<size_t>((end - begin) * size));
    });
    return;
  }
  with_type(y.dtype, [&](auto to) {
    with_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      To* out = y.as<To>();
      const From* in = x.as<From>();
      parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) out[i] = convert_to<To>(in[i]);
      });
    });
  });
}

void cpu::TAPER_ISA::add_to(Out y, In x, double factor) {
  with_float_type(y.dtype, [&](auto to) {
    with_float_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      using C = decltype(Compute<To>() + Compute<From>());
      To* out = y.as<To>();
      const From* in = x.as<From>();
      const C scale = static_cast<C>(factor);
      parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          out[i] = convert_to<To>(convert_to<C>(out[i]) + scale * convert_to<C>(in[i]));
        }
      });
    });
  });
}

void cpu::TAPER_ISA::scale_by(Out y, double factor) {
  with_float_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* data = y.as<T>();
    const Compute<T> scale = static_cast<Compute<T>>(factor);
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) data[i] = convert_to<T>(convert_to<Compute<T>>(data[i]) * scale);
    });
  });
}

void cpu::TAPER_ISA::scale_by_value(Out y, In factor) {
  if (*factor.as<double>() != 1) scale_by(y, *factor.as<double>());
}

void cpu::TAPER_ISA::sum_squares(Out result, In x) {
  double parts[kSumParts] = {};
  const int64_t n = x.numel();
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* data = x.as<T>();
    parallel_for(kSumParts, n < 2 * kGrain ? kSumParts : 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = n / kSumParts * part + n % kSumParts * part / kSumParts;
        const int64_t last = n / kSumParts * (part + 1) + n % kSumParts * (part + 1) / kSumParts;
        parts[part] = sum_squares_of(data + first, last - first);
      }
    });
  });
  double sum = 0;
  for (const double part : parts) sum += part;
  *result.as<double>() = sum;
}

}  // namespace taper
