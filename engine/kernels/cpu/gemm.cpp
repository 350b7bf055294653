// The choice of a backend: a fixed rule, so that a product has the same bits in every run on one machine.
#include "engine/kernels/cpu/gemm.h"

#include "engine/core/cpu_features.h"

namespace taper::cpu::TAPER_ISA {

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
#if defined(TAPER_ONEDNN) && defined(__AVX512F__)
  if (g.dtype != Dtype::f64 && g.k > 0) return gemm_onednn(g);
#endif
  gemm_eigen(g);
}

}  // namespace taper::cpu::TAPER_ISA
