#include "engine/kernels/decode.h"

#include "engine/core/cpu_features.h"

namespace taper {

const char* to_string(WeightType type) {
  return type == WeightType::f32 ? "f32" : type == WeightType::bf16 ? "bf16" : "int8";
}

const DecodeKernels& decode_kernels(WeightType weights) {
  const auto choose = [&](const DecodeKernels& f32, const DecodeKernels& bf16,
                          const DecodeKernels& int8) -> const DecodeKernels& {
    return weights == WeightType::f32 ? f32 : weights == WeightType::bf16 ? bf16 : int8;
  };
#if defined(__x86_64__)
  if (cpu_isa() == Isa::avx512) {
    const DecodeKernels& bf16 = has_amx_bf16()      ? cpu::amx::decode_kernels_bf16
                                : has_avx512_bf16() ? cpu::avx512bf16::decode_kernels_bf16
                                                    : cpu::avx512::decode_kernels_bf16;
    return choose(cpu::avx512::decode_kernels_f32, bf16, cpu::avx512::decode_kernels_int8);
  }
  if (cpu_isa() == Isa::avx2)
    return choose(cpu::avx2::decode_kernels_f32, cpu::avx2::decode_kernels_bf16, cpu::avx2::decode_kernels_int8);
#endif
  return choose(cpu::base::decode_kernels_f32, cpu::base::decode_kernels_bf16, cpu::base::decode_kernels_int8);
}

}  // namespace taper
