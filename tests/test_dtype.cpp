#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "engine/core/dtype.h"

namespace taper {
namespace {

float value_of(uint16_t bits) {
  bf16 b;
  b.bits = bits;
  return static_cast<float>(b);
}

float rounded(float value) { return static_cast<float>(bf16(value)); }

TEST_CASE("dtype: bf16 bits have their values") {
  CHECK(value_of(0x3F80) == 1.0f);
  CHECK(value_of(0xBF00) == -0.5f);
  CHECK(value_of(0x4049) == 3.140625f);
  CHECK(value_of(0x7F80) == std::numeric_limits<float>::infinity());
  CHECK(value_of(0x0001) == doctest::Approx(9.1835e-41f).epsilon(1e-4));
}

TEST_CASE("dtype: f32 to bf16 rounds to nearest, ties to even") {
  CHECK(rounded(1.0039f) == 1.0f);
  CHECK(rounded(1.004f) == 1.0078125f);
  CHECK(rounded(0.1f) == 0.10009765625f);
  CHECK(rounded(1.00390625f) == 1.0f);       // half way, down to even
  CHECK(rounded(1.01171875f) == 1.015625f);  // half way, up to even
  CHECK(rounded(-1.01171875f) == -1.015625f);
  CHECK(rounded(0.94f) == 0.94140625f);
  CHECK(rounded(3.4e38f) == std::numeric_limits<float>::infinity());  // beyond the greatest bf16
  CHECK(rounded(-std::numeric_limits<float>::infinity()) == -std::numeric_limits<float>::infinity());
  CHECK(std::signbit(rounded(-0.0f)));
}

TEST_CASE("dtype: every bf16 survives f32 and back; NaN stays NaN") {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = value_of(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      CHECK(std::isnan(rounded(value)));
    } else {
      CHECK(bf16(value).bits == bits);
    }
  }
  const uint32_t payload = 0x7f800001;  // would round to infinity
  float nan;
  std::memcpy(&nan, &payload, 4);
  CHECK(std::isnan(rounded(nan)));
}

TEST_CASE("dtype: sizes and names") {
  CHECK(size_of(Dtype::f64) == 8);
  CHECK(size_of(Dtype::f32) == 4);
  CHECK(size_of(Dtype::bf16) == 2);
  CHECK(size_of(Dtype::i32) == 4);
  CHECK(std::string(to_string(Dtype::bf16)) == "bf16");
}

}  // namespace
}  // namespace taper
