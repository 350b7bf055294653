// The choice of a backend: a fixed rule, so that a product has the same bits in every run on one machine.
#include "engine/kernels/cpu/gemm.h"

#include "engine/core/cpu_features.h"
#include "engine/core/parallel.h"
#include "engine/kernels/cpu/gemm_activation.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// Elements of a block of c between the product and the activation: it should still be in the cache.
constexpr int64_t kBlockElements = int64_t{1} << 19;

// Below AVX-512 ours is the faster: at the products of training on a Zen 3 at width 64, 128, 256 and 512 113, 128, 142
// and 146 GFLOP/s of a possible 195, oneDNN's 93, 119, 116 and 148, Eigen's 67, 76, 100 and 95.
bool suits_packed(const Gemm& g) {
#if defined(TAPER_ONEDNN) && defined(__AVX512F__)
  return g.dtype != Dtype::f64 && g.k == 0;
#else
  return g.dtype != Dtype::f64;
#endif
}

// What is left.
void multiply(const Gemm& g) {
  if (g.dtype == Dtype::f64) return base::gemm_eigen(g);
#if defined(TAPER_ONEDNN)
  gemm_onednn(g);
#endif
}

#if defined(__x86_64__) && defined(__AVX512F__)
// Deep products with a narrow side are mostly packing, at which the library is the better: measured at width 64.
bool suits_amx(const Gemm& g) {
  if (g.dtype != Dtype::bf16 || g.k == 0 || !has_amx_bf16()) return false;
#ifdef TAPER_ONEDNN
  const int64_t narrow_side = g.m < g.n ? g.m : g.n;
  return narrow_side > 64 || g.k < 512;
#else
  return true;
#endif
}
#endif

void activate_in_parallel(const Gemm& g) {
  parallel_for(g.m, 1 + (int64_t{1} << 13) / g.n, [&](int64_t begin, int64_t end) { activate(g.rows(begin, end)); });
}

}  // namespace

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
#if defined(__x86_64__) && defined(__AVX512F__)
  if (suits_amx(g)) return amx::gemm_amx(g);
#endif
  if (suits_packed(g)) return gemm_packed(g);
  if (!g.activated) return multiply(g);
  const int64_t step = kBlockElements / g.n / 32 * 32 + 32;
  for (int64_t row = 0; row < g.m; row += step) {
    const Gemm block = g.rows(row, row + step < g.m ? row + step : g.m);
    multiply(block);
    activate_in_parallel(block);
  }
}

}  // namespace taper::cpu::TAPER_ISA
