// The library of products of the emulated device: the processor's, since the memory is the same. It leaves activations,
// and unless the result is bf16 the bias too, to the kernel that follows a product.
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cuda/gemm.h"

namespace taper {

bool cuda::gemm_library(const Gemm& g) {
  if (g.activated || (g.bias && g.c_dtype != Dtype::bf16)) return false;
  cpu::base::gemm(g);
  return true;
}

}  // namespace taper
