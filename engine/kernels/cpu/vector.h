// Registers of f32, and sixteen lanes in as many of them as the instruction set needs: one, two or four. Included only
// by files compiled for one instruction set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/core/dtype.h"
#include "engine/kernels/decode.h"

namespace taper::cpu::TAPER_ISA {
namespace {

#define TAPER_INLINE [[gnu::always_inline]] inline
#define TAPER_INLINE_LAMBDA __attribute__((always_inline))  // behind the parameters: of large ones g++ makes calls

#if defined(__AVX512F__)
inline constexpr int kRegisterLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kRegisterLanes = 8;
#else
inline constexpr int kRegisterLanes = 4;
#endif
inline constexpr int kRegisters = 16 / kRegisterLanes;

typedef float F32 __attribute__((vector_size(4 * kRegisterLanes)));
typedef uint32_t U32 __attribute__((vector_size(4 * kRegisterLanes)));

// body(0) to body(kCount - 1), written out one after the other: what is indexed by them can stay in registers.
template <int kCount, class Body>
TAPER_INLINE void unrolled(Body&& body) {
  [&]<int... kIndices>(std::integer_sequence<int, kIndices...>) TAPER_INLINE_LAMBDA {
    (body(std::integral_constant<int, kIndices>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// Not the compiler's vector of 64 bytes: where registers are narrower, g++ keeps that in memory, and decoding takes
// five times as long.
struct F32x16 {
  F32 part[kRegisters];
};

// body(part of each), register by register.
template <class Body, class... Vectors>
TAPER_INLINE void by_register(Body&& body, Vectors&... vectors) {
  unrolled<kRegisters>([&](auto i) TAPER_INLINE_LAMBDA { body(vectors.part[i]...); });
}

TAPER_INLINE void load(F32x16& v, const float* from) {
  unrolled<kRegisters>([&](auto i)
                           TAPER_INLINE_LAMBDA { std::memcpy(&v.part[i], from + i * kRegisterLanes, sizeof(F32)); });
}
TAPER_INLINE void store(float* to, const F32x16& v) {
  unrolled<kRegisters>([&](auto i)
                           TAPER_INLINE_LAMBDA { std::memcpy(to + i * kRegisterLanes, &v.part[i], sizeof(F32)); });
}
TAPER_INLINE void splat(F32x16& v, float x) {
  by_register([&](F32& a) TAPER_INLINE_LAMBDA { a = x - F32{}; }, v);
}
TAPER_INLINE void operator+=(F32x16& a, const F32x16& b) {
  by_register([](F32& a, const F32& b) TAPER_INLINE_LAMBDA { a += b; }, a, b);
}
TAPER_INLINE void operator-=(F32x16& a, const F32x16& b) {
  by_register([](F32& a, const F32& b) TAPER_INLINE_LAMBDA { a -= b; }, a, b);
}
// sum += a b, rounded once where the instruction set can. Left to the compiler that would depend on the code around it,
// and the bits on the tile.
TAPER_INLINE void add_product(F32& sum, const F32& a, const F32& b) {
#if defined(__AVX512F__)
  sum = (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
  sum = (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#else
  sum += a * b;
#endif
}
TAPER_INLINE void add_product(F32x16& sum, const F32x16& a, const F32x16& b) {
  by_register([](F32& sum, const F32& a, const F32& b) TAPER_INLINE_LAMBDA { add_product(sum, a, b); }, sum, a, b);
}
TAPER_INLINE void add_product(F32x16& sum, const F32x16& a, float b) {
  by_register([&](F32& sum, const F32& a) TAPER_INLINE_LAMBDA { add_product(sum, a, b - F32{}); }, sum, a);
}
TAPER_INLINE void raise_to(F32x16& a, const F32x16& b) {
  by_register([](F32& a, const F32& b) TAPER_INLINE_LAMBDA { a = a < b ? b : a; }, a, b);
}

// Of 8-bit integers. g++ 12 makes most of these conversions one element at a time.
TAPER_INLINE F32 widened(const int8_t* from) {
#if defined(__AVX512F__)
  return (F32)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from)));
#elif defined(__AVX2__)
  return (F32)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from)));
#elif defined(__SSE4_1__)
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return (F32)_mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four)));
#else
  return F32{float(from[0]), float(from[1]), float(from[2]), float(from[3])};
#endif
}

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
