// Element types. bf16 is storage only: arithmetic happens in f32 (f64 for f64 tensors).
#pragma once

#include <cstdint>
#include <cstring>

namespace taper {

enum class Dtype : uint8_t { f64, f32, bf16, i32 };

inline constexpr int64_t size_of(Dtype dtype) { return dtype == Dtype::f64 ? 8 : dtype == Dtype::bf16 ? 2 : 4; }

const char* to_string(Dtype dtype);

// The upper half of an IEEE binary32, rounded to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    uint32_t u;
    std::memcpy(&u, &value, 4);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    // A NaN's payload could round up into infinity: force a quiet NaN.
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? ((u >> 16) | 0x40u) : rounded);
  }
  explicit operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
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
