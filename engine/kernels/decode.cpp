#include "engine/kernels/decode.h"

#include "engine/core/cpu_features.h"
#include "engine/core/error.h"

namespace taper {

const DecodeKernels& decode_kernels(Dtype weights) {
  require(weights == Dtype::f32 || weights == Dtype::bf16, "decode: weights of dtype {}; want f32 or bf16",
          to_string(weights));
  const bool is_f32 = weights == Dtype::f32;
#if defined(__x86_64__)
  if (!is_f32 && has_amx_bf16()) return cpu::amx::decode_kernels_bf16;
  if (!is_f32 && has_avx512_bf16()) return cpu::avx512bf16::decode_kernels_bf16;
  if (cpu_isa() == Isa::avx512) return is_f32 ? cpu::avx512::decode_kernels_f32 : cpu::avx512::decode_kernels_bf16;
  if (cpu_isa() == Isa::avx2) return is_f32 ? cpu::avx2::decode_kernels_f32 : cpu::avx2::decode_kernels_bf16;
#endif
  return is_f32 ? cpu::base::decode_kernels_f32 : cpu::base::decode_kernels_bf16;
}

}  // namespace taper
