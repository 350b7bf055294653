// Shapes of dense row-major tensors of rank 0 to 4. Letters used throughout:
//   B batch   T tokens in a window   C channels (width of the residual stream)   H heads   D size of a head
//   V vocabulary   L layers   N = B * T rows of activations
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace taper {

inline constexpr int kMaxRank = 4;

struct Shape {
  int64_t dims[kMaxRank] = {1, 1, 1, 1};
  int rank = 0;

  Shape() = default;
  // At most kMaxRank sizes, each >= 0, their product up to kMostProduct: else Error.
  Shape(std::initializer_list<int64_t> sizes);

  int64_t operator[](int i) const { return dims[i < 0 ? rank + i : i]; }  // -1 is the last dimension
  int64_t numel() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t last() const { return rank == 0 ? 1 : dims[rank - 1]; }
  int64_t rows() const { return last() == 0 ? 0 : numel() / last(); }  // everything but the last dimension
  Shape with_last(int64_t size) const;                                 // the same shape with another last dimension

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; ++i) {
      if (a.dims[i] != b.dims[i]) return false;
    }
    return true;
  }
};

// No size of anything that fits a memory is greater, and a few of such sizes can still be added in 64 bits.
inline constexpr int64_t kMostProduct = int64_t{1} << 58;

// a * b, or Error naming `what` where the product is above kMostProduct. For sizes that come from files.
int64_t checked_product(int64_t a, int64_t b, const char* what);

std::string to_string(const Shape& shape);  // "[2, 3]"

}  // namespace taper
