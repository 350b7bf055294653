// Products of f64, by Eigen.
#include <Eigen/Core>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/gemm.h"

namespace taper::cpu::TAPER_ISA {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
using Map = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

// On the calling thread.
void multiply(const Gemm& g) {
  const ConstMap a(static_cast<const double*>(g.a.data), g.a.is_transposed ? g.k : g.m, g.a.is_transposed ? g.m : g.k,
                   Eigen::OuterStride<>(g.a.stride));
  const ConstMap b(static_cast<const double*>(g.b.data), g.b.is_transposed ? g.n : g.k, g.b.is_transposed ? g.k : g.n,
                   Eigen::OuterStride<>(g.b.stride));
  Map c(static_cast<double*>(g.c), g.m, g.n, Eigen::OuterStride<>(g.c_stride));
  if (g.bias) {
    c.rowwise() = Eigen::Map<const Eigen::Matrix<double, 1, Eigen::Dynamic>>(static_cast<const double*>(g.bias), g.n);
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

}  // namespace

// Each thread computes a slice of the longer side of c.
void gemm_eigen(const Gemm& g) {
  constexpr int64_t kStep = 16;
  const double work = double(g.m) * double(g.n) * double(g.k);
  parallel_team(
      [&](const Worker& worker) {
        int64_t begin, end;
        worker.part(g.m >= g.n ? g.m : g.n, kStep, begin, end);
        if (begin < end) multiply(g.m >= g.n ? g.rows(begin, end) : g.columns(begin, end));
      },
      work < 1e5 ? 1 : thread_count());
}

}  // namespace taper::cpu::TAPER_ISA
