// The library of products of the emulated device: the processor's, since the memory is the same. It leaves activations,
// and unless the result is bf16 the bias too, to the kernel that follows a product.
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cuda/gemm.h"
#include "tests/emulation/access_checker.h"
#include "tests/emulation/device.h"

namespace taper {

bool cuda::gemm_library(const Gemm& g) {
  if (g.activated || (g.bias && g.c_dtype != Dtype::bf16)) return false;
  emulation::enqueue([g] {
    cpu::base::gemm(g);
    const int64_t size = size_of(g.c_dtype);
    for (int64_t row = 0; row < g.m; ++row) {
      emulation::mark_memory(static_cast<char*>(g.c) + row * g.c_stride * size, static_cast<size_t>(g.n * size),
                             emulation::Bytes::set);
    }
  });
  return true;
}

}  // namespace taper
