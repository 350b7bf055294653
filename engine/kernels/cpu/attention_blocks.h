// What blocked attention is made of: packed blocks of rows, products of small blocks, and work shared among threads.
// All arithmetic happens on packed copies in float (double for f64): rows padded with zeros to a multiple of the
// micro-kernel's width, so that it has no remainders to treat.
#pragma once

#include <algorithm>
#include <atomic>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// The micro-kernel holds kRows x kVectors vectors of sums in registers.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 8, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRows = 4, kVectors = 2;
#else
constexpr int kVectorBytes = 16, kRows = 4, kVectors = 2;
#endif

constexpr int64_t kBlock = 64;  // queries, and keys, of a tile

template <class C>
struct Simd {
  typedef C Vector __attribute__((vector_size(kVectorBytes)));
  static constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(C));
  static constexpr int64_t kColumns = kLanes * kVectors;
};

// One value of kColumns, by halves: a chain of single elements would take longer than all that filled them.
template <class C, class Combine>
inline C combine_lanes(C* lane, Combine combine) {
  for (int64_t width = Simd<C>::kColumns / 2; width >= 1; width /= 2) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) lane[i] = combine(lane[i], lane[i + width]);
  }
  return lane[0];
}

template <class C>
inline C sum_lanes(C* lane) {
  return combine_lanes(lane, [](C a, C b) { return a + b; });
}

// a b^T of two packed rows.
template <class C>
inline C dot(const C* a, const C* b, int64_t columns) {
  C lane[Simd<C>::kColumns] = {};
  for (int64_t column = 0; column < columns; column += Simd<C>::kColumns) {
#pragma omp simd
    for (int64_t i = 0; i < Simd<C>::kColumns; ++i) lane[i] += a[column + i] * b[column + i];
  }
  return sum_lanes(lane);
}

inline int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A product's left operand: element (row, k) at data[row * row_step + k * k_step].
template <class C>
struct Left {
  const C* data;
  int64_t row_step;
  int64_t k_step;
};

// c[0:kRows, 0:columns] (+)= a[0:kRows, first:last] b[first:last, 0:columns]; columns a multiple of kColumns.
template <class C>
void multiply_strip(C* c, int64_t c_step, bool adds, const Left<C>& a, const C* b, int64_t b_step, int64_t columns,
                    int64_t first, int64_t last) {
  using Vector = typename Simd<C>::Vector;
  constexpr int64_t kLanes = Simd<C>::kLanes;
  for (int64_t column = 0; column < columns; column += Simd<C>::kColumns) {
    Vector sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = adds ? *reinterpret_cast<const Vector*>(c + r * c_step + column + v * kLanes) : Vector{};
      }
    }
    const C* left = a.data + first * a.k_step;
    const C* right = b + first * b_step + column;
    for (int64_t k = first; k < last; ++k, left += a.k_step, right += b_step) {
      Vector factor[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) factor[v] = *reinterpret_cast<const Vector*>(right + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const C value = left[r * a.row_step];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] += value * factor[v];
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        *reinterpret_cast<Vector*>(c + r * c_step + column + v * kLanes) = sum[r][v];
      }
    }
  }
}

// Where the heads lie in qkv and y.
struct Layout {
  int64_t batch, tokens, heads, kv_heads, size;
  int64_t padded;  // size, rounded up to the micro-kernel's width
  int64_t blocks;

  Layout(In qkv, const AttentionOptions& options, int64_t columns)
      : batch(qkv.shape[0]),
        tokens(qkv.shape[1]),
        heads(options.heads),
        kv_heads(options.kv_heads),
        size(options.head_size),
        padded(rounded_up(size, columns)),
        blocks((tokens + kBlock - 1) / kBlock) {}

  int64_t group() const { return heads / kv_heads; }
  int64_t pairs() const { return batch * kv_heads; }  // of a sequence and a head of keys
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * size; }
  int64_t qkv_offset(int64_t b, int64_t head) const { return b * tokens * qkv_width() + head * size; }
  int64_t y_offset(int64_t b, int64_t head) const { return b * tokens * heads * size + head * size; }
  int64_t stat_offset(int64_t b, int64_t head) const { return (b * heads + head) * tokens; }
  int64_t rows_in(int64_t block) const { return std::min(kBlock, tokens - block * kBlock); }
};

// Rows of one head inside a wider tensor.
struct Rows {
  int64_t offset;
  int64_t step;
  int64_t count;
};

// to[row][0:padded] = factor * rows, zeros behind them, up to kBlock rows.
template <class C>
void pack_rows(C* to, In from, const Rows& rows, const Layout& layout, C factor) {
  with_float_type(from.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t r = 0; r < rows.count; ++r) {
      const T* source = from.as<T>() + rows.offset + r * rows.step;
      C* row = to + r * layout.padded;
#pragma omp simd
      for (int64_t d = 0; d < layout.size; ++d) row[d] = factor * convert_to<C>(source[d]);
      for (int64_t d = layout.size; d < layout.padded; ++d) row[d] = 0;
    }
  });
  std::fill(to + rows.count * layout.padded, to + kBlock * layout.padded, C(0));
}

// to[d][key], d < size, kBlock keys a row, from rows packed before.
template <class C>
void transpose_block(C* to, const C* from, const Layout& layout) {
  for (int64_t d = 0; d < layout.size; ++d) {
#pragma omp simd
    for (int64_t key = 0; key < kBlock; ++key) to[d * kBlock + key] = from[key * layout.padded + d];
  }
}

template <class C>
void unpack_rows(Acc to, const Rows& rows, const C* from, const Layout& layout, C factor) {
  with_float_type(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t r = 0; r < rows.count; ++r) {
      T* target = to.as<T>() + rows.offset + r * rows.step;
      const C* row = from + r * layout.padded;
      if (to.add) {
#pragma omp simd
        for (int64_t d = 0; d < layout.size; ++d) {
          target[d] = convert_to<T>(convert_to<C>(target[d]) + factor * row[d]);
        }
      } else {
#pragma omp simd
        for (int64_t d = 0; d < layout.size; ++d) target[d] = convert_to<T>(factor * row[d]);
      }
    }
  });
}

// Units of work taken in turn by the threads of the team, each with its own scratch memory of `scratch` elements.
template <class C, class Body>
void share_out(int64_t units, int64_t scratch, Body&& body) {
  if (units == 0) return;
  const int threads = static_cast<int>(std::min<int64_t>(units, thread_count()));
  const int64_t each = rounded_up(scratch, 64);
  const Scratch<C> memory(threads * each);
  std::atomic<int64_t> next{0};
  parallel_team(
      [&](const Worker& worker) {
        for (int64_t unit = next++; unit < units; unit = next++) body(unit, memory.get() + worker.index * each);
      },
      threads);
}

// The blocks of part `part` of `parts`: outer and inner ones together, so that all parts have equal work under the
// causal mask. parts <= ceil(blocks / 2).
inline bool is_in_part(int64_t block, int64_t blocks, int64_t part, int64_t parts) {
  return std::min(block, blocks - 1 - block) % parts == part;
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
