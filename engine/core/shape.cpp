#include "engine/core/shape.h"

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace taper {

const char* to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return "f64";
    case Dtype::f32:
      return "f32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::i32:
      return "i32";
  }
  return "?";
}

int64_t checked_product(int64_t a, int64_t b, const char* what) {
  int64_t product = 0;
  const bool overflows = a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > kMostProduct;
  require(!overflows, "{}: {} x {} does not fit in memory", what, a, b);
  return product;
}

Shape::Shape(std::initializer_list<int64_t> sizes) {
  require(sizes.size() <= kMaxRank, "shape: too many dimensions; got {}, want at most {}", sizes.size(), kMaxRank);
  int64_t product = 1;
  for (const int64_t size : sizes) {
    require(size >= 0, "shape: negative dimension; got {}", size);
    product = checked_product(product, size, "shape");
    dims[rank++] = size;
  }
}

Shape Shape::with_last(int64_t size) const {
  Shape result = *this;
  if (result.rank == 0) result.rank = 1;
  result.dims[result.rank - 1] = size;
  return result;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += (i ? ", " : "") + std::to_string(shape.dims[i]);
  return text + "]";
}

}  // namespace taper
