#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Parts of the rows over which dbias is summed apart, whatever the number of threads.
constexpr int64_t kBiasParts = 16;

// Activation::none beside the functions of scalar_math.h.
struct Identity {
  template <class T>
  static T slope(T) {
    return T(1);
  }
};

template <class T, class Function>
void activation_backward_rows(T* dpre, Compute<T>* dbias, const T* dy, const T* pre, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    T* out = dpre + row * columns;
    const T* in = dy + row * columns;
    const T* at = pre + row * columns;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      const Compute<T> d = convert_to<Compute<T>>(in[i]) * Function::slope(convert_to<Compute<T>>(at[i]));
      out[i] = convert_to<T>(d);
      if (dbias) dbias[i] += d;
    }
  }
}

template <class T>
void column_sums(Compute<T>* sums, const T* dy, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) sums[i] += convert_to<Compute<T>>(dy[row * columns + i]);
  }
}

template <class S, class T>
void sum_bias_parts(Acc dbias, const S* parts, int64_t columns) {
  T* out = dbias.as<T>();
  for (int64_t i = 0; i < columns; ++i) {
    S sum = 0;
    for (int64_t part = 0; part < kBiasParts; ++part) sum += parts[part * columns + i];
    out[i] = convert_to<T>(dbias.add ? convert_to<S>(out[i]) + sum : sum);
  }
}

template <class T, class Function>
void activation_backward(Out dpre, Acc dbias, In dy, In pre) {
  using S = Compute<T>;
  constexpr bool kIsIdentity = std::is_same_v<Function, Identity>;
  const int64_t rows = dy.rows(), columns = dy.cols();
  const Scratch<S> parts(dbias ? kBiasParts * columns : 0);
  parallel_for(kBiasParts, rows * columns < (1 << 14) ? kBiasParts : 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = rows * part / kBiasParts, count = rows * (part + 1) / kBiasParts - first;
      const T* from = dy.as<T>() + first * columns;
      T* to = dpre.as<T>() + first * columns;
      S* sums = parts.get() ? parts.get() + part * columns : nullptr;
      if (sums) std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(columns) * sizeof(S));
      if constexpr (kIsIdentity) {
        if (sums) column_sums(sums, from, count, columns);
        if (to != from) std::memcpy(to, from, static_cast<size_t>(count * columns) * sizeof(T));
      } else {
        activation_backward_rows<T, Function>(to, sums, from, pre.as<T>() + first * columns, count, columns);
      }
    }
  });
  if (dbias)
    with_float_type(dbias.dtype,
                    [&](auto type) { sum_bias_parts<S, typename decltype(type)::type>(dbias, parts.get(), columns); });
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::matmul(Acc c, In a, In b, MatmulOptions options) { gemm(matmul_gemm(c, a, b, options)); }

void cpu::TAPER_ISA::linear_fwd(Out y, Out pre, In x, In w, In bias, Activation act) {
  gemm(linear_gemm(y, pre, x, w, bias, act));
}

void cpu::TAPER_ISA::linear_act_bwd(Out dpre, Acc dbias, In dy, In pre, Activation act) {
  with_float_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (act == Activation::none) activation_backward<T, Identity>(dpre, dbias, dy, pre);
    math::with_function(act, [&](auto function) { activation_backward<T, decltype(function)>(dpre, dbias, dy, pre); });
  });
}

}  // namespace taper
