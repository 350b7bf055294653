// bf16 products on the tiles of AMX. The unit of work is a tile of c of 32 x 32, in four accumulator registers of
// 16 x 16; each step along k multiplies two register tiles of a by two of b, 32 deep.
//
// A register tile of a is 16 rows of 32 bf16; one of b is 16 rows, each a pair of k for 16 columns. Operands are packed
// into such tiles of 1,024 bytes, padded with zeros:
//   a [m / 32][k / 32][2 halves of the rows], b [n / 32][k / 32][2 halves of the columns]
// An operand whose rows already lie as a's tiles want them is read in place. Where both operands lie with k outermost,
// as for the gradient of a weight, packing a is the dearer half, and the transpose of c may be computed instead.
#ifndef TAPER_ISA
#define TAPER_ISA amx
#endif

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::amx {
namespace {

constexpr int64_t kTile = 32;        // rows, columns and depth of a unit of work
constexpr int64_t kHalfTile = 512;   // elements of a register tile
constexpr int64_t kDepthTiles = 16;  // k tiles of one pass: a panel of b stays in the cache
constexpr int64_t kBlockTiles = 8;   // rows of tiles that share a panel of b

int64_t tiles_of(int64_t n) { return (n + kTile - 1) / kTile; }

void transpose(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i low = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), high = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    t[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// Sixteen lines along the outer dimension (m or n) from `outer`, 32 along k from `depth`.
struct Source {
  const bf16* data;
  int64_t stride;
  bool has_contiguous_k;
  int64_t outer_size, k;

  // Row i: line `outer + i`, k from `depth`.
  void load_lines(__m512i r[16], int64_t outer, int64_t depth) const {
    const int64_t width = std::min<int64_t>(32, k - depth);
    const __mmask32 mask = width == 32 ? ~__mmask32(0) : (__mmask32(1) << width) - 1;
    if (width == 32 && outer + 16 <= outer_size) {
      for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(data + (outer + i) * stride + depth);
      return;
    }
    for (int i = 0; i < 16; ++i) {
      const bool exists = outer + i < outer_size;
      r[i] = exists ? _mm512_maskz_loadu_epi16(mask, data + (outer + i) * stride + depth) : _mm512_setzero_si512();
    }
  }
  // Row i: the pair (depth + 2 i, depth + 2 i + 1) of sixteen lines.
  void load_pairs(__m512i r[16], int64_t outer, int64_t depth) const {
    const int64_t width = std::clamp<int64_t>(outer_size - outer, 0, 16);
    const __mmask16 mask = static_cast<__mmask16>((1u << width) - 1);
    if (width == 16 && depth + 32 <= k) {
      const bf16* from = data + depth * stride + outer;
      for (int i = 0; i < 16; ++i, from += 2 * stride) {
        const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        const __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + stride)));
        r[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
      }
      return;
    }
    const auto line = [&](int64_t at) {
      if (at >= k) return _mm512_setzero_si512();
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, data + at * stride + outer));
    };
    for (int i = 0; i < 16; ++i) {
      r[i] = _mm512_or_si512(line(depth + 2 * i), _mm512_slli_epi32(line(depth + 2 * i + 1), 16));
    }
  }
};

// One unit of 32 lines x 32 k: by lines for a, by pairs for b.
void pack_tile(bf16* to, const Source& source, bool by_lines, int64_t outer_tile, int64_t k_tile) {
  for (int64_t half = 0; half < 2; ++half) {
    __m512i r[16];
    const int64_t outer = outer_tile * kTile + half * 16, depth = k_tile * kTile;
    if (source.has_contiguous_k) {
      source.load_lines(r, outer, depth);
    } else {
      source.load_pairs(r, outer, depth);
    }
    if (source.has_contiguous_k != by_lines) transpose(r);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + half * kHalfTile + i * 32, r[i]);
  }
}

// Each worker packs its part in the order in which the source lies in memory.
void pack(const Worker& worker, bf16* to, const Source& source, bool by_lines, int64_t first_tile) {
  const int64_t k_tiles = tiles_of(source.k), outer_tiles = tiles_of(source.outer_size) - first_tile;
  const int64_t inner = source.has_contiguous_k ? k_tiles : outer_tiles;
  int64_t begin, end;
  worker.part(outer_tiles * k_tiles, 1, begin, end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t outer_tile = source.has_contiguous_k ? i / inner : i % inner;
    const int64_t k_tile = source.has_contiguous_k ? i % inner : i / inner;
    pack_tile(to + (outer_tile * k_tiles + k_tile) * 2 * kHalfTile, source, by_lines, first_tile + outer_tile, k_tile);
  }
}

// 32 rows of a: the address of the first k tile and the ways to the others, in bytes.
struct Rows {
  const char* data;
  int64_t stride, to_second_half, to_next_k;
};

// sums [32][32] (+)= rows of a times a panel of b, `k_tiles` deep.
void multiply_tile(float* sums, bool adds, const Rows& a, const char* b, int64_t k_tiles) {
  constexpr int64_t kSumStride = kTile * 4;
  if (adds) {
    _tile_loadd(0, sums, kSumStride);
    _tile_loadd(1, sums + 16, kSumStride);
    _tile_loadd(2, sums + 16 * kTile, kSumStride);
    _tile_loadd(3, sums + 16 * kTile + 16, kSumStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const char* at = a.data;
  for (int64_t i = 0; i < k_tiles; ++i, at += a.to_next_k, b += 4 * kHalfTile) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, at, a.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 2 * kHalfTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, at + a.to_second_half, a.stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + 16, kSumStride);
  _tile_stored(2, sums + 16 * kTile, kSumStride);
  _tile_stored(3, sums + 16 * kTile + 16, kSumStride);
}

// A row of a tile of c in f32, as two vectors.
struct Row {
  __m512 low, high;
};

Row load(const float* from, __mmask32 mask) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from),
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16)};
}
Row widen(__m512i pairs) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs)), 16)),
          _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1)), 16))};
}
Row load(const bf16* from, __mmask32 mask) { return widen(_mm512_maskz_loadu_epi16(mask, from)); }

// What the stored values are in f32.
Row store(float* to, const Row& row, __mmask32 mask) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), row.low);
  _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(mask >> 16), row.high);
  return row;
}
Row store(bf16* to, const Row& row, __mmask32 mask) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(row.high, row.low);
  __m512i bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  _mm512_mask_storeu_epi16(to, mask, bits);
  return widen(bits);
}

// Bias, what c holds, the rounding and the activation.
template <class C>
void finish_tile(const Gemm& g, float* sums, int64_t row, int64_t column) {
  const int64_t rows = std::min(kTile, g.m - row), columns = std::min(kTile, g.n - column);
  const __mmask32 mask = columns == kTile ? ~__mmask32(0) : (__mmask32(1) << columns) - 1;
  const Row zero{_mm512_setzero_ps(), _mm512_setzero_ps()};
  const Row bias = g.bias ? load(static_cast<const float*>(g.bias) + column, mask) : zero;
  C* c = static_cast<C*>(g.c) + row * g.c_stride + column;
  for (int64_t i = 0; i < rows; ++i, c += g.c_stride) {
    const Row add = g.adds ? load(c, mask) : bias;
    const __m512 low = _mm512_load_ps(sums + i * kTile), high = _mm512_load_ps(sums + i * kTile + 16);
    const Row stored = store(c, {_mm512_add_ps(low, add.low), _mm512_add_ps(high, add.high)}, mask);
    if (!g.activated) continue;
    _mm512_store_ps(sums + i * kTile, stored.low);
    _mm512_store_ps(sums + i * kTile + 16, stored.high);
  }
  if (!g.activated) return;
  math::with_function(g.act, [&](auto function) {
#pragma omp simd
    for (int64_t i = 0; i < kTile * kTile; ++i) sums[i] = decltype(function)::value(sums[i]);
  });
  C* y = static_cast<C*>(g.activated) + row * g.c_stride + column;
  for (int64_t i = 0; i < rows; ++i, y += g.c_stride) store(y, load(sums + i * kTile, mask), mask);
}

void transpose_tile(float* to, const float* from) {
  for (int64_t row = 0; row < kTile; row += 16) {
    for (int64_t column = 0; column < kTile; column += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + (row + i) * kTile + column);
      transpose(r);
      for (int i = 0; i < 16; ++i) _mm512_store_si512(to + (column + i) * kTile + row, r[i]);
    }
  }
}

// By the shuffles it takes: one for 8 bf16 packed across, one for 4 sums.
bool is_cheaper_transposed(const Gemm& g) {
  return g.a.is_transposed && !g.b.is_transposed && g.n * g.k + 2 * g.m * g.n < g.m * g.k;
}

// The same product of the transposes; where c goes stays as it was.
Gemm transposed(const Gemm& g) {
  Gemm t = g;
  t.m = g.n;
  t.n = g.m;
  t.a = {g.b.data, g.b.stride, true};
  t.b = {g.a.data, g.a.stride, false};
  return t;
}

class Product {
 public:
  // `g` computes the transpose of c where `target`, which owns c, is another product.
  Product(const Gemm& g, const Gemm& target)
      : g_(g),
        target_(target),
        k_tiles_(tiles_of(g.k)),
        m_tiles_(tiles_of(g.m)),
        n_tiles_(tiles_of(g.n)),
        reads_a_in_place_(!g.a.is_transposed && g.k % kTile == 0),
        first_packed_(reads_a_in_place_ ? g.m / kTile : 0),
        a_((m_tiles_ - first_packed_) * k_tiles_ * 2 * kHalfTile),
        b_(n_tiles_ * k_tiles_ * 2 * kHalfTile),
        sums_(k_tiles_ > kDepthTiles ? m_tiles_ * n_tiles_ * kTile * kTile : 0) {}

  void run() {
    const double work = double(g_.m) * double(g_.n) * double(g_.k);
    parallel_team([&](const Worker& worker) { run_on(worker); }, work < 1e6 ? 1 : thread_count());
  }

 private:
  void run_on(const Worker& worker) {
    const bf16* a = static_cast<const bf16*>(g_.a.data);
    const bf16* b = static_cast<const bf16*>(g_.b.data);
    pack(worker, a_.get(), {a, g_.a.stride, !g_.a.is_transposed, g_.m, g_.k}, true, first_packed_);
    pack(worker, b_.get(), {b, g_.b.stride, g_.b.is_transposed, g_.n, g_.k}, false, 0);
    worker.barrier();

    // A grid of workers over c, as many as there are rows of tiles along m first.
    int along_m = worker.count;
    while (worker.count % along_m != 0 || along_m > m_tiles_) --along_m;
    const int along_n = worker.count / along_m;
    const Worker in_rows{worker.index % along_m, along_m, nullptr},
        in_columns{worker.index / along_m, along_n, nullptr};
    int64_t m_begin, m_end, n_begin, n_end;
    in_rows.part(m_tiles_, 1, m_begin, m_end);
    in_columns.part(n_tiles_, 1, n_begin, n_end);

    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Config config;
    _tile_loadconfig(&config);
    for (int64_t k = 0; k < k_tiles_; k += kDepthTiles) {
      for (int64_t m = m_begin; m < m_end; m += kBlockTiles) {
        multiply_block(m, std::min(m + kBlockTiles, m_end), n_begin, n_end, k, std::min(kDepthTiles, k_tiles_ - k));
      }
    }
    _tile_release();
  }

  Rows rows_of_a(int64_t m_tile, int64_t k_tile) const {
    if (m_tile < first_packed_) {
      const int64_t stride = g_.a.stride * 2;
      return {static_cast<const char*>(g_.a.data) + m_tile * kTile * stride + k_tile * kTile * 2, stride, 16 * stride,
              kTile * 2};
    }
    const bf16* tile = a_.get() + ((m_tile - first_packed_) * k_tiles_ + k_tile) * 2 * kHalfTile;
    return {reinterpret_cast<const char*>(tile), 64, 2 * kHalfTile, 4 * kHalfTile};
  }

  void multiply_block(int64_t m_begin, int64_t m_end, int64_t n_begin, int64_t n_end, int64_t k, int64_t depth) {
    alignas(64) float local[kTile * kTile];
    const bool is_last = k + depth == k_tiles_;
    for (int64_t n = n_begin; n < n_end; ++n) {
      const char* b = reinterpret_cast<const char*>(b_.get() + (n * k_tiles_ + k) * 2 * kHalfTile);
      for (int64_t m = m_begin; m < m_end; ++m) {
        float* sums = sums_.get() ? sums_.get() + (m * n_tiles_ + n) * kTile * kTile : local;
        multiply_tile(sums, k > 0, rows_of_a(m, k), b, depth);
        if (is_last) finish(sums, m * kTile, n * kTile);
      }
    }
  }

  void finish(float* sums, int64_t row, int64_t column) const {
    alignas(64) float turned[kTile * kTile];
    if (&target_ != &g_) {
      transpose_tile(turned, sums);
      sums = turned;
      std::swap(row, column);
    }
    if (target_.c_dtype == Dtype::bf16) {
      finish_tile<bf16>(target_, sums, row, column);
    } else {
      finish_tile<float>(target_, sums, row, column);
    }
  }

  const Gemm& g_;
  const Gemm& target_;
  const int64_t k_tiles_, m_tiles_, n_tiles_;
  const bool reads_a_in_place_;
  const int64_t first_packed_;  // the first row of tiles of a that is packed
  const Scratch<bf16> a_, b_;
  const Scratch<float> sums_;  // of passes along k that are not the last
};

}  // namespace

void gemm_amx(const Gemm& g) {
  if (is_cheaper_transposed(g)) {
    Product(transposed(g), g).run();
  } else {
    Product(g, g).run();
  }
}

}  // namespace taper::cpu::amx
