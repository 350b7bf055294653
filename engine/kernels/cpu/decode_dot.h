// bf16 weights times bf16 activations, two columns an instruction, sums in f32. For AVX-512 BF16 and above.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "engine/kernels/cpu/decode_stages.h"

namespace taper::cpu::TAPER_ISA {
namespace {

struct DotPanels {
  using Weight = bf16;
  using Input = bf16;
  static constexpr int kColumns = 2;
  using Step = __m512bh;

  TAPER_INLINE static void read(Step& step, const Weight* w) { step = (__m512bh)_mm512_loadu_si512(w); }
  TAPER_INLINE static void add(F32x16& sum, const Step& step, const Input* x) {
    int32_t both;
    std::memcpy(&both, x, sizeof both);
    sum.part[0] = (F32)_mm512_dpbf16_ps((__m512)sum.part[0], step, (__m512bh)_mm512_set1_epi32(both));
  }
};

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
