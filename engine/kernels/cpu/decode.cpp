#include "engine/kernels/cpu/decode_stages.h"

namespace taper::cpu::TAPER_ISA {

const DecodeKernels decode_kernels_f32 = make_decode_kernels<F32Panels>("f32");
const DecodeKernels decode_kernels_bf16 = make_decode_kernels<WidenedPanels>("bf16 weights, widened");
const DecodeKernels decode_kernels_int8 = make_decode_kernels<Int8Panels, F32Panels>("int8 weights, widened");

}  // namespace taper::cpu::TAPER_ISA
