#include "engine/core/parallel.h"
#include "engine/kernels/cpu/activation.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Elements of a block of the output between the product and the activation: it should still be in the cache.
constexpr int64_t kBlockElements = int64_t{1} << 19;

// Parts of the rows over which dbias is summed apart, whatever the number of threads.
constexpr int64_t kBiasParts = 16;

template <class T, Activation act>
void apply_activation(T* y, const T* pre, int64_t count) {
  parallel_for(count, int64_t{1} << 13, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = convert_to<T>(activate<act>(convert_to<Compute<T>>(pre[i])));
  });
}

template <class T, Activation act>
void activation_backward_rows(T* dpre, Compute<T>* dbias, const T* dy, const T* pre, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    T* out = dpre + row * columns;
    const T* in = dy + row * columns;
    const T* at = act == Activation::none ? in : pre + row * columns;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      const Compute<T> d = convert_to<Compute<T>>(in[i]) * activation_slope<act>(convert_to<Compute<T>>(at[i]));
      if (act != Activation::none) out[i] = convert_to<T>(d);
      if (dbias) dbias[i] += d;
    }
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

template <class T, Activation act>
void activation_backward(Out dpre, Acc dbias, In dy, In pre) {
  using S = Compute<T>;
  const int64_t rows = dy.rows(), columns = dy.cols();
  const bool copies = act == Activation::none && dpre.data != dy.data;
  const Scratch<S> parts(dbias ? kBiasParts * columns : 0);
  parallel_for(kBiasParts, rows * columns < (1 << 14) ? kBiasParts : 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = rows * part / kBiasParts, last = rows * (part + 1) / kBiasParts;
      const T* from = dy.as<T>() + first * columns;
      T* to = dpre.as<T>() + first * columns;
      S* sums = parts.get() ? parts.get() + part * columns : nullptr;
      if (sums) std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(columns) * sizeof(S));
      if (copies) std::memcpy(to, from, static_cast<size_t>((last - first) * columns) * sizeof(T));
      if (act == Activation::none && !sums) continue;
      const T* at = act == Activation::none ? nullptr : pre.as<T>() + first * columns;
      activation_backward_rows<T, act>(to, sums, from, at, last - first, columns);
    }
  });
  if (dbias)
    with_float_type(dbias.dtype,
                    [&](auto type) { sum_bias_parts<S, typename decltype(type)::type>(dbias, parts.get(), columns); });
}

Gemm gemm_of(const View& c, In a, In b, MatmulOptions options) {
  Gemm g;
  g.m = c.rows();
  g.k = options.transpose_a ? a.rows() : a.cols();
  g.n = c.cols();
  g.dtype = a.dtype;
  g.a = {a.data, a.cols(), options.transpose_a};
  g.b = {b.data, b.cols(), options.transpose_b};
  g.c = c.data;
  g.c_stride = c.cols();
  g.c_dtype = c.dtype;
  return g;
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::matmul(Acc c, In a, In b, MatmulOptions options) {
  Gemm g = gemm_of(c, a, b, options);
  g.adds = c.add;
  gemm(g);
}

void cpu::TAPER_ISA::linear_fwd(Out y, Out pre, In x, In w, In bias, Activation act) {
  const View& target = pre ? pre : y;
  Gemm g = gemm_of(target, x, w, {false, true});
  g.bias = bias.data;
  if (act == Activation::none) {
    gemm(g);
    return;
  }
  const int64_t step = kBlockElements / (g.n + 1) / 32 * 32 + 32;
  for (int64_t row = 0; row < g.m; row += step) {
    const int64_t end = row + step < g.m ? row + step : g.m;
    gemm(g.rows(row, end));
    with_float_type(y.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      with_activation(act, [&](auto tag) {
        apply_activation<T, decltype(tag)::value>(y.as<T>() + row * g.n, target.as<T>() + row * g.n, (end - row) * g.n);
      });
    });
  }
}

void cpu::TAPER_ISA::linear_act_bwd(Out dpre, Acc dbias, In dy, In pre, Activation act) {
  with_float_type(dy.dtype, [&](auto type) {
    with_activation(act, [&](auto tag) {
      activation_backward<typename decltype(type)::type, decltype(tag)::value>(dpre, dbias, dy, pre);
    });
  });
}

}  // namespace taper
