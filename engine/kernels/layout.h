// Shapes of tensors whose elements meet by broadcasting, as kernels index them.
#pragma once

#include <cstdint>

#include "engine/core/shape.h"
#include "engine/kernels/target.h"

namespace TAPER_KERNEL_NAMESPACE {
namespace {

// The dimensions moved to the end, so that the last one is the innermost; and how far a step along each goes in memory.
struct Layout {
  int64_t dims[kMaxRank] = {1, 1, 1, 1};
  int64_t strides[kMaxRank];

  explicit Layout(const Shape& shape) {
    for (int i = 0; i < shape.rank; ++i) dims[kMaxRank - shape.rank + i] = shape.dims[i];
    int64_t stride = 1;
    for (int i = kMaxRank; i-- > 0;) {
      strides[i] = dims[i] == 1 ? 0 : stride;
      stride *= dims[i];
    }
  }
  // Where row `row` of the tensor `whole` lies in this one, which has some dimensions of size 1 instead.
  TAPER_HD int64_t offset_of_row(const Layout& whole, int64_t row) const {
    int64_t offset = 0;
    for (int i = kMaxRank - 1; i-- > 0;) {
      offset += row % whole.dims[i] * strides[i];
      row /= whole.dims[i];
    }
    return offset;
  }
};

}  // namespace
}  // namespace TAPER_KERNEL_NAMESPACE
