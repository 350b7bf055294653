// Tiles in shared memory and their products on CUDA cores. 16 x 16 threads work on a tile of kTile rows: thread (x, y)
// has the rows y, y + 16, ... of it. Head sizes beyond kHead are treated in chunks of kHead columns.
#pragma once

#include <cmath>

#include "engine/kernels/cuda/attention_layout.h"

namespace taper::cuda {

constexpr int kSide = 16;
constexpr int kTileThreads = kSide * kSide;

template <class C_, int kTile_, int kHead_>
struct Tiles {
  using C = C_;
  static constexpr int kTile = kTile_, kHead = kHead_;
  static constexpr int kPack = kHead < 64 ? 2 : 4;  // columns read at once
  static constexpr int kRows = kTile / kSide;       // of a tile, a thread's
  static constexpr int kKeys = kTile / kSide;       // columns of a tile of scores, a thread's: x, x + 16, ...
  static constexpr int kColumnPacks = kHead / (kSide * kPack);  // packs of columns of a thread, 16 apart
  // Rows apart by an odd number of packs: reads of 8 rows at one column touch every bank once.
  static constexpr int kRowStride = kHead + kPack;
  static constexpr int kScoreStride = kTile + kPack;
  static constexpr int kRowTile = kTile * kRowStride;      // elements of a tile of rows of heads
  static constexpr int kScoreTile = kTile * kScoreStride;  // of a tile of scores

  using Values = gpu::Pack<C, kPack>;
  using Scores = C[kRows][kKeys];
  using Sums = Values[kRows][kColumnPacks];

  static constexpr int chunks(int64_t size) { return static_cast<int>((size + kHead - 1) / kHead); }
  __device__ static int row(int i) { return static_cast<int>(threadIdx.y) + kSide * i; }
  __device__ static int key(int j) { return static_cast<int>(threadIdx.x) + kSide * j; }
  __device__ static int column(int n) { return kPack * (static_cast<int>(threadIdx.x) + kSide * n); }
};

// `count` rows of a head in memory, from column `first` on.
template <class T>
struct HeadRows {
  const T* data;
  int64_t step;  // from a row to the next
  int64_t count, size;
};

// Rows and columns that do not exist become zeros.
template <class Tile, class T>
__device__ void load_tile(typename Tile::C* tile, const HeadRows<T>& rows, int chunk, typename Tile::C scale) {
  using C = typename Tile::C;
  constexpr int kPacks = Tile::kHead / Tile::kPack;
  const bool has_packs = rows.size % Tile::kPack == 0;
  const int thread = static_cast<int>(threadIdx.y) * kSide + static_cast<int>(threadIdx.x);
  GPU_UNROLL
  for (int n = 0; n < Tile::kTile * kPacks / kTileThreads; ++n) {
    const int at = thread + n * kTileThreads, row = at / kPacks, pack = at % kPacks * Tile::kPack;
    const int64_t column = int64_t{chunk} * Tile::kHead + pack;
    typename Tile::Values values{};
    if (row < rows.count && column < rows.size) {
      const T* from = rows.data + row * rows.step + column;
      if (has_packs) {
        const auto stored = gpu::load_pack<Tile::kPack>(from);
        GPU_UNROLL
        for (int j = 0; j < Tile::kPack; ++j) values[j] = convert_to<C>(stored[j]) * scale;
      } else {
        for (int j = 0; j < Tile::kPack && column + j < rows.size; ++j) values[j] = convert_to<C>(from[j]) * scale;
      }
    }
    gpu::store_pack(tile + row * Tile::kRowStride + pack, values);
  }
}

// scores += a b^T over the first `columns` columns.
template <class Tile>
__device__ void add_scores(typename Tile::Scores& scores, const typename Tile::C* a, const typename Tile::C* b,
                           int columns) {
  using Values = typename Tile::Values;
  for (int column = 0; column < columns; column += Tile::kPack) {
    Values rows[Tile::kRows], keys[Tile::kKeys];
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i)
      rows[i] = gpu::load_pack<Tile::kPack>(a + Tile::row(i) * Tile::kRowStride + column);
    GPU_UNROLL
    for (int j = 0; j < Tile::kKeys; ++j)
      keys[j] = gpu::load_pack<Tile::kPack>(b + Tile::key(j) * Tile::kRowStride + column);
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      GPU_UNROLL
      for (int j = 0; j < Tile::kKeys; ++j) {
        GPU_UNROLL
        for (int n = 0; n < Tile::kPack; ++n) scores[i][j] += rows[i][n] * keys[j][n];
      }
    }
  }
}

// sums += p b, p a tile of scores in shared memory (kTransposed: its transpose), over the first `keys` rows of b.
template <class Tile, bool kTransposed>
__device__ void add_product(typename Tile::Sums& sums, const typename Tile::C* p, const typename Tile::C* b, int keys) {
  for (int key = 0; key < keys; ++key) {
    typename Tile::Values values[Tile::kColumnPacks];
    GPU_UNROLL
    for (int n = 0; n < Tile::kColumnPacks; ++n) {
      values[n] = gpu::load_pack<Tile::kPack>(b + key * Tile::kRowStride + Tile::column(n));
    }
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      const int row = Tile::row(i);
      const typename Tile::C weight =
          kTransposed ? p[key * Tile::kScoreStride + row] : p[row * Tile::kScoreStride + key];
      GPU_UNROLL
      for (int n = 0; n < Tile::kColumnPacks; ++n) {
        GPU_UNROLL
        for (int j = 0; j < Tile::kPack; ++j) sums[i][n][j] += weight * values[n][j];
      }
    }
  }
}

template <class Tile>
__device__ void store_scores(typename Tile::C* tile, const typename Tile::Scores& scores) {
  GPU_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    GPU_UNROLL
    for (int j = 0; j < Tile::kKeys; ++j) tile[Tile::row(i) * Tile::kScoreStride + Tile::key(j)] = scores[i][j];
  }
}

template <class Tile>
__device__ void clear(typename Tile::Sums& sums) {
  GPU_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    GPU_UNROLL
    for (int n = 0; n < Tile::kColumnPacks; ++n) sums[i][n] = typename Tile::Values{};
  }
}

// Rows of sums, times `factor`, into memory: the rows and columns that exist.
template <class Tile, class T>
__device__ void put_rows(T* data, int64_t step, int64_t count, int64_t size, int chunk, const typename Tile::Sums& sums,
                         typename Tile::C factor, bool add) {
  using C = typename Tile::C;
  GPU_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    if (Tile::row(i) >= count) continue;
    GPU_UNROLL
    for (int n = 0; n < Tile::kColumnPacks; ++n) {
      const int64_t column = int64_t{chunk} * Tile::kHead + Tile::column(n);
      T* to = data + Tile::row(i) * step + column;
      GPU_UNROLL
      for (int j = 0; j < Tile::kPack; ++j) {
        if (column + j >= size) continue;
        const C value = sums[i][n][j] * factor;
        to[j] = convert_to<T>(add ? convert_to<C>(to[j]) + value : value);
      }
    }
  }
}

// Columns of a chunk that are worth multiplying.
template <class Tile>
__device__ int columns_of(int64_t size, int chunk) {
  const int64_t rest = size - int64_t{chunk} * Tile::kHead;
  return rest < Tile::kHead ? static_cast<int>((rest + Tile::kPack - 1) / Tile::kPack * Tile::kPack) : Tile::kHead;
}

}  // namespace taper::cuda
