// Element types. bf16 is storage only: arithmetic happens in f32 (f64 for f64 tensors).
#pragma once

#include <bit>
#include <cstdint>

namespace taper {

enum class Dtype : uint8_t { f64, f32, bf16, i32 };

inline constexpr int64_t size_of(Dtype dtype) { return dtype == Dtype::f64 ? 8 : dtype == Dtype::bf16 ? 2 : 4; }

const char* to_string(Dtype dtype);

// The upper half of an IEEE binary32, rounded to nearest even; NaN stays NaN. The conversions are constexpr so that
// device code may call them as well.
struct bf16 {
  uint16_t bits;

  bf16() = default;
  constexpr explicit bf16(float value) : bits(upper_half(std::bit_cast<uint32_t>(value))) {}
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

 private:
  static constexpr uint16_t upper_half(uint32_t u) {
    // A NaN's payload could round up into infinity: force a quiet NaN.
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::f64;
};
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::f32;
};
template <>
struct DtypeOf<bf16> {
  static constexpr Dtype value = Dtype::bf16;
};
template <>
struct DtypeOf<int32_t> {
  static constexpr Dtype value = Dtype::i32;
};

}  // namespace taper
