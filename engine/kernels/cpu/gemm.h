// Matrix products on the CPU: c = a b (+ c) (+ bias), whatever computes them. Every kernel that multiplies matrices
// calls gemm(), which alone decides between the backends.
#pragma once

#include "engine/kernels/gemm.h"

namespace taper::cpu {

// Each instruction set has its own: gemm() chooses, gemm_packed() is our own for f32 and bf16. gemm_eigen() and
// gemm_onednn() leave `activated` to gemm().
#define TAPER_GEMM(isa)            \
  namespace isa {                  \
  void gemm(const Gemm& g);        \
  void gemm_packed(const Gemm& g); \
  }
TAPER_GEMM(base)
TAPER_GEMM(avx2)
TAPER_GEMM(avx512)
#undef TAPER_GEMM

namespace base {
void gemm_eigen(const Gemm& g);  // f64 alone: for tests, so one instruction set is enough
}

#if defined(__x86_64__)
namespace amx {
// bf16 operands alone, where has_amx_bf16().
void gemm_amx(const Gemm& g);
}  // namespace amx
#endif

#ifdef TAPER_ONEDNN
// f32 and bf16 alone. Dispatches on the processor itself, held to what TAPER_ISA allows.
void gemm_onednn(const Gemm& g);
#endif

}  // namespace taper::cpu
