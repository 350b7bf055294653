// Attention's tiles on tensor cores: bf16 rows of heads in shared memory, products of 16 rows a warp with f32 sums in
// registers. A sum of m16n8 lies so that a lane has the columns 2 (lane % 4) and the next of the rows lane / 4 and
// lane / 4 + 8; in pairs of groups of 8 columns it is, rounded, the left operand of the next product.
#pragma once

#include <cmath>

#include "engine/kernels/cuda/attention_layout.h"

namespace taper::cuda {

constexpr int kMmaWarps = 4;
constexpr int kMmaThreads = kMmaWarps * gpu::kWarp;
constexpr int kMmaRows = 16;                     // of a warp
constexpr int kMmaBlock = kMmaWarps * kMmaRows;  // of a block
constexpr float kLog2E = 1.4426950408889634f;    // exp(x) = 2^(x log2 e)

// A tile's rows, kHead_ columns of a head and 16 bytes that keep 8 rows at one column out of each other's banks.
template <int kHead_>
struct MmaTile {
  static constexpr int kHead = kHead_;
  static constexpr int kStride = kHead + 8;
  static constexpr int kSteps = kHead / 16;                            // of the inner dimension of products over a head
  static constexpr int kGroups = kHead / 8;                            // groups of 8 columns
  static constexpr int kBlocks = kHead > 64 ? 2 : kHead > 32 ? 3 : 4;  // that should share a multiprocessor
  static constexpr int elements(int rows) { return rows * kStride; }

  using Sums = float[kGroups][4];  // of 16 rows by the columns of a head
};

template <class Tile>
__device__ void clear(typename Tile::Sums& sums) {
  GPU_UNROLL
  for (int n = 0; n < Tile::kGroups; ++n) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) sums[n][j] = 0;
  }
}

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % gpu::kWarp; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / gpu::kWarp; }

// Begins to copy kRows rows of a head; what does not exist becomes zeros.
template <class Tile, int kRows>
__device__ void copy_rows(bf16* tile, const bf16* rows, int64_t step, int64_t count, int64_t size) {
  constexpr int kPieces = Tile::kHead / 8;
  const int last_row = count < kRows ? static_cast<int>(count) : kRows, last_column = static_cast<int>(size);
  GPU_UNROLL
  for (int n = 0; n < kRows * kPieces / kMmaThreads; ++n) {
    const int at = static_cast<int>(threadIdx.x) + n * kMmaThreads, row = at / kPieces, column = at % kPieces * 8;
    const bool exists = row < last_row && column < last_column;
    gpu::copy_to_shared_async(tile + row * Tile::kStride + column, exists ? rows + row * step + column : rows, exists);
  }
}

// Rows `row` to row + 15 of a tile as a left operand, columns k to k + 15.
template <class Tile>
__device__ void load_left(uint32_t (&fragment)[4], const bf16* tile, int row, int k) {
  const int lane = lane_of_warp(), matrix = lane / 8;
  gpu::load_matrices(fragment, tile + (row + matrix % 2 * 8 + lane % 8) * Tile::kStride + k + matrix / 2 * 8);
}

// Sums of 16 rows of a by kCount rows of b: sums += a b^T.
template <class Tile, int kCount>
__device__ void add_row_products(float (&sums)[kCount / 8][4], const bf16* a, int row, const bf16* b) {
  const int lane = lane_of_warp(), matrix = lane / 8;
  GPU_UNROLL
  for (int step = 0; step < Tile::kSteps; ++step) {
    uint32_t left[4];
    load_left<Tile>(left, a, row, 16 * step);
    GPU_UNROLL
    for (int n = 0; n < kCount / 16; ++n) {
      uint32_t right[4];
      gpu::load_matrices(right, b + (16 * n + matrix / 2 * 8 + lane % 8) * Tile::kStride + 16 * step + matrix % 2 * 8);
      const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      gpu::mma_16x8x16(sums[2 * n], left, first);
      gpu::mma_16x8x16(sums[2 * n + 1], left, second);
    }
  }
}

__device__ inline uint32_t pair_of(float first, float second) {
  return convert_to<bf16>(first).bits | static_cast<uint32_t>(convert_to<bf16>(second).bits) << 16;
}

// sums += w b, w [16, kCount] in registers as the sums of a product, b kCount rows.
template <class Tile, int kCount>
__device__ void add_weighted_rows(typename Tile::Sums& sums, const float (&w)[kCount / 8][4], const bf16* b) {
  const int lane = lane_of_warp(), matrix = lane / 8;
  GPU_UNROLL
  for (int step = 0; step < kCount / 16; ++step) {
    const auto &low = w[2 * step], &high = w[2 * step + 1];
    const uint32_t left[4] = {pair_of(low[0], low[1]), pair_of(low[2], low[3]), pair_of(high[0], high[1]),
                              pair_of(high[2], high[3])};
    GPU_UNROLL
    for (int n = 0; n < Tile::kGroups / 2; ++n) {
      uint32_t right[4];
      gpu::load_matrices<true>(right,
                               b + (16 * step + matrix % 2 * 8 + lane % 8) * Tile::kStride + 16 * n + matrix / 2 * 8);
      const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      gpu::mma_16x8x16(sums[2 * n], left, first);
      gpu::mma_16x8x16(sums[2 * n + 1], left, second);
    }
  }
}

// A warp's sums, times `factor`, as bf16 into its 16 rows of a tile that nobody else reads.
template <class Tile>
__device__ void stage_rows(bf16* tile, const typename Tile::Sums& sums, float factor_low, float factor_high) {
  const int lane = lane_of_warp(), row = warp_of_block() * kMmaRows + lane / 4;
  GPU_UNROLL
  for (int n = 0; n < Tile::kGroups; ++n) {
    bf16* to = tile + row * Tile::kStride + 8 * n + 2 * (lane % 4);
    const uint32_t low = pair_of(sums[n][0] * factor_low, sums[n][1] * factor_low);
    const uint32_t high = pair_of(sums[n][2] * factor_high, sums[n][3] * factor_high);
    gpu::copy_aligned<4>(to, &low);
    gpu::copy_aligned<4>(to + 8 * Tile::kStride, &high);
  }
}

// The warp's 16 rows of a tile into memory, 16 bytes a lane, added to what is there or not.
template <class Tile>
__device__ void write_rows(bf16* to, int64_t step, int64_t count, int64_t size, const bf16* tile, bool add) {
  constexpr int kPieces = Tile::kHead / 8;
  const int first = warp_of_block() * kMmaRows;
  for (int at = lane_of_warp(); at < kMmaRows * kPieces; at += gpu::kWarp) {
    const int row = first + at / kPieces, column = at % kPieces * 8;
    if (row >= count || column >= size) continue;
    auto values = gpu::load_pack<8>(tile + row * Tile::kStride + column);
    if (add) {
      const auto before = gpu::load_pack<8>(to + row * step + column);
      GPU_UNROLL
      for (int j = 0; j < 8; ++j) {
        values[j] = convert_to<bf16>(convert_to<float>(values[j]) + convert_to<float>(before[j]));
      }
    }
    gpu::store_pack(to + row * step + column, values);
  }
}

// The same for sums in f32 memory, straight from registers.
template <class Tile>
__device__ void write_rows(float* to, int64_t step, int64_t count, int64_t size, const typename Tile::Sums& sums,
                           float factor, bool add) {
  const int lane = lane_of_warp(), first = warp_of_block() * kMmaRows + lane / 4;
  GPU_UNROLL
  for (int n = 0; n < Tile::kGroups; ++n) {
    const int column = 8 * n + 2 * (lane % 4);
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + 8 * half;
      if (row >= count || column >= size) continue;
      float* at = to + row * step + column;
      gpu::Pack<float, 2> values;
      GPU_UNROLL
      for (int j = 0; j < 2; ++j) values[j] = sums[n][2 * half + j] * factor + (add ? at[j] : 0.0f);
      gpu::store_pack(at, values);
    }
  }
}

}  // namespace taper::cuda
