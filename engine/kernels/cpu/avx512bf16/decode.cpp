#include "engine/kernels/cpu/decode_dot.h"

namespace taper::cpu::TAPER_ISA {

const DecodeKernels decode_kernels_bf16 = make_decode_kernels<DotPanels>("bf16 weights and activations");

}  // namespace taper::cpu::TAPER_ISA
