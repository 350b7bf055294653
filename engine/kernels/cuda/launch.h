// The size of a launch, checked, with the place in the source that asked for it; and memory for it. Host code.
#pragma once

#include <cstdint>
#include <string>

namespace taper::gpu {

// Device memory for the length of a call; what was queued before its return may still use it.
void* take_scratch(int64_t bytes);
void give_back_scratch(void* memory);

[[noreturn]] void fail_on_device(const std::string& text);  // nvcc does not take error.h's checked format strings
[[noreturn]] void fail_grid(const char* file, int line, int64_t x, int64_t y, int64_t z);

// Blocks in each direction. An empty grid launches nothing, so sizes of 0 need no case of their own.
struct Grid {
  Grid(int64_t x_, int64_t y_ = 1, int64_t z_ = 1, const char* file_ = __builtin_FILE(), int line_ = __builtin_LINE())
      : x(x_), y(y_), z(z_), file(file_), line(line_) {
    if (x < 0 || x > 0x7fffffff || y < 0 || y > 0xffff || z < 0 || z > 0xffff) fail_grid(file, line, x, y, z);
  }
  bool is_empty() const { return x == 0 || y == 0 || z == 0; }

  int64_t x, y, z;
  const char* file;
  int line;
};

// Blocks of `each` that cover n; at most `most`, for kernels whose threads go on in strides of the grid.
inline int64_t blocks_for(int64_t n, int64_t each, int64_t most = 0x7fffffff) {
  const int64_t blocks = (n + each - 1) / each;
  return blocks < most ? blocks : most;
}

}  // namespace taper::gpu
