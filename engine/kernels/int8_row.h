// A row of a matrix as 8-bit integers and one scale: w ~ scale q, with q from -127 to 127, the nearest, ties to even.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace taper {

// The greatest |w| by 127; NaN where an element is not finite, so that a broken row shows.
inline float int8_scale(const float* row, int64_t k) {
  float greatest = 0;
  bool is_finite = true;
  for (int64_t j = 0; j < k; ++j) {
    is_finite &= std::isfinite(row[j]);
    greatest = std::max(greatest, std::fabs(row[j]));
  }
  return is_finite ? greatest / 127 : std::numeric_limits<float>::quiet_NaN();
}

inline int8_t to_int8(float w, float scale) {
  if (!(scale > 0)) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(w / scale), -127.0f, 127.0f));  // scales near 0 are not exact
}

}  // namespace taper
