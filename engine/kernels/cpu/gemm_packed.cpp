// Products of f32 and bf16 by blocks that stay in the caches, after K. Goto and R. A. van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication", ACM TOMS 34 (2008). Blocks of the operands are copied in the order in which
// the innermost loop reads them, bf16 widened on the way, but for rows of f32, which lie well as they are; that loop
// keeps kRows x kColumns sums in registers. Each entry of c is summed in the order of k, whatever part of c a thread
// has: the bits do not depend on their number.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/gemm_activation.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/cpu/vector.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// With two registers of b and one of a, these sums fill the registers.
constexpr int64_t kRows = kRegisterLanes == 16 ? 12 : 6, kColumns = 2 * kRegisterLanes;

// A sliver of b, kDepth x kColumns, stays in the first-level cache, a block of a in the second, one of b in the third.
constexpr int64_t kDepth = 256, kBlockRows = 192, kBlockColumns = 2048;
static_assert(kBlockRows % kRows == 0 && kBlockColumns % kColumns == 0);

// Where sums go: c = sums (+ c) or sums + bias.
struct Target {
  float* c;
  int64_t stride;
  bool adds;
  const float* bias;

  Target at(int64_t row, int64_t column) const {
    return {c + row * stride + column, stride, adds, bias ? bias + column : nullptr};
  }
};

TAPER_INLINE F32 load(const float* from) {
  F32 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

TAPER_INLINE void store_row(const Target& t, int64_t row, F32 low, F32 high) {
  float* c = t.c + row * t.stride;
  if (t.adds) {
    low += load(c);
    high += load(c + kRegisterLanes);
  } else if (t.bias) {
    low += load(t.bias);
    high += load(t.bias + kRegisterLanes);
  }
  std::memcpy(c, &low, sizeof low);
  std::memcpy(c + kRegisterLanes, &high, sizeof high);
}

// Rows of a: entry p of the i-th of a tile's at data[i * row + p * step], the tile from row i on at data + i *
// tile_row.
struct Rows {
  const float* data;
  int64_t row, step, tile_row;

  Rows tile(int64_t i) const { return {data + i * tile_row, row, step, tile_row}; }
};
Rows packed_rows(const float* slivers, int64_t depth) { return {slivers, 1, kRows, depth}; }
Rows plain_rows(const float* data, int64_t stride) { return {data, stride, 1, stride}; }

// kRows x kColumns entries of c.
TAPER_INLINE void multiply_rows(const Target& target, const Rows& a, const float* b, int64_t depth) {
  F32 low[kRows] = {}, high[kRows] = {};
  // By the time of the sums c is at hand: a quarter of the time at width 512.
  for (int64_t i = 0; i < kRows; ++i) {
    const float* c = target.c + i * target.stride;
    __builtin_prefetch(c, 1);
    __builtin_prefetch(c + kColumns - 1, 1);
  }
  const float* factors = a.data;
  for (int64_t p = 0; p < depth; ++p, factors += a.step, b += kColumns) {
    const F32 b_low = load(b), b_high = load(b + kRegisterLanes);
#pragma GCC unroll 12
    for (int64_t i = 0; i < kRows; ++i) {
      const F32 factor = factors[i * a.row] - F32{};
      add_product(low[i], factor, b_low);
      add_product(high[i], factor, b_high);
    }
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < kRows; ++i) store_row(target, i, low[i], high[i]);
}

// Two loops: with what is known of the addresses each has its own.
void multiply_tile(const Target& target, const Rows& a, const float* b, int64_t depth) {
  if (a.step == 1) {
    multiply_rows(target, plain_rows(a.data, a.row), b, depth);
  } else {
    multiply_rows(target, packed_rows(a.data, depth), b, depth);
  }
}

// The same at the edge of c: into a whole tile beside it.
void multiply_edge_tile(const Target& target, const Rows& a, const float* b, int64_t depth, int64_t rows,
                        int64_t columns) {
  alignas(64) float tile[kRows * kColumns];
  multiply_tile({tile, kColumns, false, nullptr}, a, b, depth);
  for (int64_t i = 0; i < rows; ++i) {
    float* c = target.c + i * target.stride;
    for (int64_t j = 0; j < columns; ++j) {
      const float sum = tile[i * kColumns + j];
      c[j] = target.adds ? c[j] + sum : target.bias ? sum + target.bias[j] : sum;
    }
  }
}

// A block of `count` vectors of `depth` entries, in groups of kGroup side by side: entry p of vector i of a group at
// to[p * kGroup + i]. A vector's entries are `stride` apart (is_across), or its neighbours are. Missing ones are zero.
template <int64_t kGroup, class T>
void pack(float* to, const T* from, int64_t stride, bool is_across, int64_t count, int64_t depth) {
  for (int64_t first = 0; first < count; first += kGroup, to += kGroup * depth) {
    const int64_t present = std::min(kGroup, count - first);
    if (present < kGroup) {
      for (int64_t i = 0; i < kGroup * depth; ++i) to[i] = 0;
    }
    if (is_across && present == kGroup) {
      for (int64_t p = 0; p < depth; ++p) {
#pragma omp simd
        for (int64_t i = 0; i < kGroup; ++i) to[p * kGroup + i] = convert_to<float>(from[p * stride + first + i]);
      }
    } else if (is_across) {
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t i = 0; i < present; ++i) to[p * kGroup + i] = convert_to<float>(from[p * stride + first + i]);
      }
    } else {
      for (int64_t i = 0; i < present; ++i) {
        const T* vector = from + (first + i) * stride;
        for (int64_t p = 0; p < depth; ++p) to[p * kGroup + i] = convert_to<float>(vector[p]);
      }
    }
  }
}

// Working memory of one thread.
struct Blocks {
  float *a, *b;
};
int64_t a_block_size(const Gemm& g) { return std::min(kDepth, g.k) * std::min(kBlockRows, round_up(g.m, kRows)); }
int64_t b_block_size(const Gemm& g) { return std::min(kDepth, g.k) * std::min(kBlockColumns, round_up(g.n, kColumns)); }

struct BlockOfA {
  Rows rows, last;  // last: those behind the last whole tile
};

// Rows [row, row + rows) and entries [p, p + depth) of a. Copied to `memory` where they are transposed or bf16; of
// plain rows only the last, whose tile would reach beyond them.
template <class T>
BlockOfA block_of_a(const Gemm& g, int64_t row, int64_t p, int64_t rows, int64_t depth, float* memory) {
  const int64_t stride = g.a.stride, whole = rows / kRows * kRows;
  const T* from = static_cast<const T*>(g.a.data) + (g.a.is_transposed ? p * stride + row : row * stride + p);
  if constexpr (std::is_same_v<T, float>) {
    if (!g.a.is_transposed) {
      pack<kRows>(memory, from + whole * stride, stride, false, rows - whole, depth);
      return {plain_rows(from, stride), packed_rows(memory, depth)};
    }
  }
  pack<kRows>(memory, from, stride, g.a.is_transposed, rows, depth);
  const Rows all = packed_rows(memory, depth);
  return {all, all.tile(whole)};
}

// Rows and columns of c by one block of a and one of b.
void multiply_blocks(const Target& target, const BlockOfA& a, const float* b, int64_t rows, int64_t columns,
                     int64_t depth) {
  for (int64_t j = 0; j < columns; j += kColumns, b += kColumns * depth) {
    for (int64_t i = 0; i < rows; i += kRows) {
      const int64_t height = std::min(kRows, rows - i), width = std::min(kColumns, columns - j);
      const Rows tile = height == kRows ? a.rows.tile(i) : a.last;
      if (height == kRows && width == kColumns) {
        multiply_tile(target.at(i, j), tile, b, depth);
      } else {
        multiply_edge_tile(target.at(i, j), tile, b, depth, height, width);
      }
    }
  }
}

// On the calling thread, c in f32. The activation follows while its block is in a cache.
template <class T>
void multiply(const Gemm& g, const Blocks& blocks) {
  const T* const b = static_cast<const T*>(g.b.data);
  Target c{static_cast<float*>(g.c), g.c_stride, g.adds, static_cast<const float*>(g.bias)};
  int64_t p = 0;
  do {  // once where k is 0
    const int64_t depth = std::min(kDepth, g.k - p);
    for (int64_t j = 0; j < g.n; j += kBlockColumns) {
      const int64_t columns = std::min(kBlockColumns, g.n - j);
      pack<kColumns>(blocks.b, b + (g.b.is_transposed ? j * g.b.stride + p : p * g.b.stride + j), g.b.stride,
                     !g.b.is_transposed, columns, depth);
      for (int64_t i = 0; i < g.m; i += kBlockRows) {
        const int64_t rows = std::min(kBlockRows, g.m - i);
        const BlockOfA block = block_of_a<T>(g, i, p, rows, depth, blocks.a);
        multiply_blocks(c.at(i, j), block, blocks.b, rows, columns, depth);
        if (g.activated && p + depth == g.k) activate(g.rows(i, i + rows).columns(j, j + columns));
      }
    }
    c.adds = true;
  } while ((p += kDepth) < g.k);
}

void store_bf16(const Gemm& g, const float* sums, int64_t stride) {
  for (int64_t row = 0; row < g.m; ++row) {
    bf16* c = static_cast<bf16*>(g.c) + row * g.c_stride;
    const float* from = sums + row * stride;
    if (g.adds) {
#pragma omp simd
      for (int64_t i = 0; i < g.n; ++i) c[i] = convert_to<bf16>(from[i] + convert_to<float>(c[i]));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < g.n; ++i) c[i] = convert_to<bf16>(from[i]);
    }
  }
}

}  // namespace

// Each thread computes a slice of the longer side of c.
void gemm_packed(const Gemm& g) {
  const int threads = double(g.m) * double(g.n) * double(g.k) < 1e5 ? 1 : thread_count();
  const bool is_narrow = g.c_dtype == Dtype::bf16;
  const int64_t a_size = round_up(a_block_size(g), 16), b_size = round_up(b_block_size(g), 16);
  const Scratch<float> blocks((a_size + b_size) * threads), sums(is_narrow ? g.m * g.n : 0);
  Gemm wide = g;
  if (is_narrow) {
    wide.c = sums.get();
    wide.c_stride = g.n;
    wide.c_dtype = Dtype::f32;
    wide.adds = false;
    wide.activated = nullptr;
  }
  parallel_team(
      [&](const Worker& worker) {
        const bool by_rows = g.m >= g.n;
        int64_t begin, end;
        worker.part(by_rows ? g.m : g.n, by_rows ? kRows : kColumns, begin, end);
        if (begin == end) return;
        const Gemm part = by_rows ? wide.rows(begin, end) : wide.columns(begin, end);
        float* own = blocks.get() + (a_size + b_size) * worker.index;
        if (g.dtype == Dtype::bf16) {
          multiply<bf16>(part, {own, own + a_size});
        } else {
          multiply<float>(part, {own, own + a_size});
        }
        if (is_narrow) {
          const Gemm narrow = by_rows ? g.rows(begin, end) : g.columns(begin, end);
          store_bf16(narrow, static_cast<const float*>(part.c), g.n);
          if (narrow.activated) activate(narrow);
        }
      },
      threads);
}

}  // namespace taper::cpu::TAPER_ISA
