// What PTX says about tensor cores and ldmatrix (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type").
#include <cstring>

#include "tests/emulation/gpu_backend.h"

namespace taper::gpu::detail {
namespace {

// The bf16 at `half` (0 or 1) of a fragment's register.
float half_of(uint32_t pair, int half) {
  bf16 value;
  value.bits = static_cast<uint16_t>(half ? pair >> 16 : pair);
  return static_cast<float>(value);
}

uint16_t element(const void* row, int column) {
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(row) + 2 * column, sizeof bits);
  return bits;
}

}  // namespace

void mma_16x8x16(void* const (&lanes)[32]) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaLane& mine = *static_cast<const MmaLane*>(lanes[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) a[group + i % 2 * 8][pair + i / 2 * 8 + half] = half_of(mine.a[i], half);
      for (int i = 0; i < 2; ++i) b[pair + i * 8 + half][group] = half_of(mine.b[i], half);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const MmaLane& mine = *static_cast<const MmaLane*>(lanes[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      mine.c[i] += sum;
    }
  }
}

void load_matrices(void* const (&lanes)[32]) {
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t* taken = static_cast<const MatrixLane*>(lanes[lane])->taken;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const void* row = static_cast<const MatrixLane*>(lanes[matrix * 8 + lane / 4])->row;
      const int column = lane % 4 * 2;
      taken[matrix] = element(row, column) | static_cast<uint32_t>(element(row, column + 1)) << 16;
    }
  }
}

void load_matrices_transposed(void* const (&lanes)[32]) {
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t* taken = static_cast<const MatrixLane*>(lanes[lane])->taken;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int first = matrix * 8 + lane % 4 * 2;
      const void* row = static_cast<const MatrixLane*>(lanes[first])->row;
      const void* next = static_cast<const MatrixLane*>(lanes[first + 1])->row;
      taken[matrix] = element(row, lane / 4) | static_cast<uint32_t>(element(next, lane / 4)) << 16;
    }
  }
}

}  // namespace taper::gpu::detail
