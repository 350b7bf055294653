// Matrix products on the device: c = a b (+ c) (+ bias), and an activation of it. Kernels that multiply matrices call
// gemm(); behind it stands one library, and what that cannot do in the same pass a kernel of our own does after it.
#pragma once

#include "engine/kernels/gemm.h"

namespace taper::cuda {

// Any product, empty ones included.
void gemm(const Gemm& g);

// The library: native/gemm_cublaslt.cu, or in tests tests/emulation/gemm_host.cpp. m, n and k are at least 1. False,
// with nothing done, where it cannot add the bias or activate while it multiplies; without these it takes any product.
bool gemm_library(const Gemm& g);

}  // namespace taper::cuda
