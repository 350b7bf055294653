// Products by Eigen: for every type, on every machine. bf16 operands are widened to f32 first.
#include <Eigen/Core>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
using Map = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

// c of the operands' own type, on the calling thread.
template <class T>
void multiply(const Gemm& g) {
  const ConstMap<T> a(static_cast<const T*>(g.a.data), g.a.is_transposed ? g.k : g.m, g.a.is_transposed ? g.m : g.k,
                      Eigen::OuterStride<>(g.a.stride));
  const ConstMap<T> b(static_cast<const T*>(g.b.data), g.b.is_transposed ? g.n : g.k, g.b.is_transposed ? g.k : g.n,
                      Eigen::OuterStride<>(g.b.stride));
  Map<T> c(static_cast<T*>(g.c), g.m, g.n, Eigen::OuterStride<>(g.c_stride));
  if (g.bias) {
    c.rowwise() = Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(static_cast<const T*>(g.bias), g.n);
  } else if (!g.adds) {
    c.setZero();
  }
  if (g.k == 0) return;
  if (g.a.is_transposed && g.b.is_transposed) {
    c.noalias() += a.transpose() * b.transpose();
  } else if (g.a.is_transposed) {
    c.noalias() += a.transpose() * b;
  } else if (g.b.is_transposed) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

// Each thread computes a slice of the longer side of c.
template <class T>
void multiply_in_parallel(const Gemm& g) {
  constexpr int64_t kStep = 16;
  const double work = double(g.m) * double(g.n) * double(g.k);
  parallel_team(
      [&](const Worker& worker) {
        int64_t begin, end;
        worker.part(g.m >= g.n ? g.m : g.n, kStep, begin, end);
        if (begin < end) multiply<T>(g.m >= g.n ? g.rows(begin, end) : g.columns(begin, end));
      },
      work < 1e5 ? 1 : thread_count());
}

// The same matrix in f32, without gaps between its rows.
Operand widen(const Operand& operand, int64_t rows, int64_t columns, float* to) {
  parallel_for(rows, 1 + (int64_t{1} << 15) / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const bf16* from = static_cast<const bf16*>(operand.data) + row * operand.stride;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) to[row * columns + i] = static_cast<float>(from[i]);
    }
  });
  return {to, columns, operand.is_transposed};
}

void store_bf16(const Gemm& g, const float* sums) {
  parallel_for(g.m, 1 + (int64_t{1} << 15) / (g.n + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      bf16* c = static_cast<bf16*>(g.c) + row * g.c_stride;
      const float* from = sums + row * g.n;
      const float keep = g.adds ? 1.0f : 0.0f;
#pragma omp simd
      for (int64_t i = 0; i < g.n; ++i) c[i] = bf16(from[i] + (keep != 0 ? static_cast<float>(c[i]) : 0.0f));
    }
  });
}

}  // namespace

void gemm_eigen(const Gemm& g) {
  if (g.dtype == Dtype::f64) return multiply_in_parallel<double>(g);
  const bool widens = g.dtype == Dtype::bf16;
  const bool narrows = g.c_dtype == Dtype::bf16;
  const Scratch<float> a(widens ? g.m * g.k : 0), b(widens ? g.k * g.n : 0), sums(narrows ? g.m * g.n : 0);
  Gemm f = g;
  f.dtype = Dtype::f32;
  if (widens) {
    f.a = widen(g.a, g.a.is_transposed ? g.k : g.m, g.a.is_transposed ? g.m : g.k, a.get());
    f.b = widen(g.b, g.b.is_transposed ? g.n : g.k, g.b.is_transposed ? g.k : g.n, b.get());
  }
  if (narrows) {
    f.c = sums.get();
    f.c_stride = g.n;
    f.c_dtype = Dtype::f32;
    f.adds = false;
  }
  multiply_in_parallel<float>(f);
  if (narrows) store_bf16(g, sums.get());
}

}  // namespace taper::cpu::TAPER_ISA
