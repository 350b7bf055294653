// Sixteen lanes in the compiler's vector type: one register, two or four, as the instruction set has it. Included only
// by files compiled for one instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/core/dtype.h"
#include "engine/kernels/decode.h"

namespace taper::cpu::TAPER_ISA {
namespace {

typedef float F32x16 __attribute__((vector_size(64)));
typedef uint32_t U32x16 __attribute__((vector_size(64)));

#define TAPER_INLINE [[gnu::always_inline]] inline

template <class Vector>
TAPER_INLINE void load(Vector& v, const void* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class Vector>
TAPER_INLINE void store(void* to, const Vector& v) {
  std::memcpy(to, &v, sizeof v);
}
TAPER_INLINE void splat(F32x16& v, float x) { v = F32x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

TAPER_INLINE float sum_lanes(const F32x16& v) {
  float t[16];
  store(t, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] += t[i + width];
  }
  return t[0];
}

TAPER_INLINE float max_lanes(const F32x16& v) {
  float t[16];
  store(t, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] = t[i] < t[i + width] ? t[i + width] : t[i];
  }
  return t[0];
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
