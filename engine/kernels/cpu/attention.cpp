// Blocked causal attention with the online softmax of FlashAttention (Dao et al., arXiv 2205.14135; the backward's
// order, key blocks outside and queries inside, is FlashAttention-2's, arXiv 2307.08691). Scores exist only as one
// kBlock x kBlock tile at a time. All arithmetic happens on packed copies in float (double for f64): rows padded with
// zeros to a multiple of the micro-kernel's width, so that it has no remainders to treat.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/allocator.h"
#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

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
  C* memory = static_cast<C*>(allocate(threads * each * static_cast<int64_t>(sizeof(C)), "attention's scratch memory"));
  std::atomic<int64_t> next{0};
  parallel_team(
      [&](const Worker& worker) {
        for (int64_t unit = next++; unit < units; unit = next++) body(unit, memory + worker.index * each);
      },
      threads);
  release(memory);
}

// The blocks of part `part` of `parts`: outer and inner ones together, so that all parts have equal work under the
// causal mask. parts <= ceil(blocks / 2).
inline bool is_in_part(int64_t block, int64_t blocks, int64_t part, int64_t parts) {
  return std::min(block, blocks - 1 - block) % parts == part;
}

// --- forward ---

template <class C>
class Forward {
 public:
  Forward(Out y, Out lse, In qkv, const AttentionOptions& options)
      : y_(y, false),
        lse_(lse),
        qkv_(qkv),
        layout_(qkv, options, Simd<C>::kColumns),
        scale_(static_cast<C>(options.scale)) {}

  void run() {
    const int64_t most_parts = (layout_.blocks + 1) / 2;
    const int64_t threads = thread_count();
    const int64_t parts = layout_.pairs() >= 4 * threads
                              ? 1
                              : std::min(most_parts, (4 * threads) / std::max<int64_t>(1, layout_.pairs()));
    const int64_t keys = layout_.blocks * kBlock * layout_.padded;
    const int64_t scratch = 2 * keys + 2 * kBlock * layout_.padded + kBlock * kBlock + 2 * kBlock;
    share_out<C>(layout_.pairs() * parts, scratch, [&](int64_t unit, C* memory) {
      C* keys_memory = memory;
      run_unit(unit / parts, unit % parts, parts, keys_memory, memory + keys, memory + 2 * keys);
    });
  }

 private:
  void run_unit(int64_t pair, int64_t part, int64_t parts, C* kt, C* v, C* rest) const {
    const Layout& l = layout_;
    const int64_t b = pair / l.kv_heads, kv_head = pair % l.kv_heads;
    const int64_t block_size = kBlock * l.padded;
    const int64_t k_offset = l.qkv_offset(b, l.heads + kv_head);
    const int64_t v_offset = l.qkv_offset(b, l.heads + l.kv_heads + kv_head);
    for (int64_t block = 0; block < l.blocks - part; ++block) {
      const int64_t start = block * kBlock * l.qkv_width();
      pack_rows(rest, qkv_, {k_offset + start, l.qkv_width(), l.rows_in(block)}, l, C(1));
      transpose_block(kt + block * block_size, rest, l);
      pack_rows(v + block * block_size, qkv_, {v_offset + start, l.qkv_width(), l.rows_in(block)}, l, C(1));
    }
    for (int64_t block = 0; block < l.blocks; ++block) {
      if (!is_in_part(block, l.blocks, part, parts)) continue;
      for (int64_t g = 0; g < l.group(); ++g) attend(b, kv_head * l.group() + g, block, kt, v, rest);
    }
  }

  // One block of queries against all the keys they see.
  void attend(int64_t b, int64_t head, int64_t block, const C* kt, const C* v, C* memory) const {
    const Layout& l = layout_;
    const int64_t block_size = kBlock * l.padded;
    C *q = memory, *sum = q + block_size, *scores = sum + block_size, *greatest = scores + kBlock * kBlock,
      *total = greatest + kBlock;
    const int64_t count = l.rows_in(block);
    pack_rows(q, qkv_, {l.qkv_offset(b, head) + block * kBlock * l.qkv_width(), l.qkv_width(), count}, l, scale_);
    std::fill(greatest, greatest + kBlock, -std::numeric_limits<C>::infinity());
    std::fill(total, total + kBlock, C(0));
    for (int64_t key_block = 0; key_block <= block; ++key_block) {
      const C* kt_block = kt + key_block * block_size;
      const C* v_block = v + key_block * block_size;
      const bool is_diagonal = key_block == block;
      for (int64_t row = 0; row < count; row += kRows) {
        const int64_t seen = is_diagonal ? row + kRows : kBlock;
        const int64_t columns = rounded_up(seen, Simd<C>::kColumns);
        C* tile = scores + row * kBlock;
        multiply_strip(tile, kBlock, false, {q + row * l.padded, l.padded, 1}, kt_block, kBlock, columns, 0, l.size);
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t visible = is_diagonal ? row + r + 1 : kBlock;
          soften_row(tile + r * kBlock, visible, columns, greatest[row + r], total[row + r], sum + (row + r) * l.padded,
                     key_block == 0);
        }
        multiply_strip(sum + row * l.padded, l.padded, key_block > 0, {tile, kBlock, 1}, v_block, l.padded, l.padded, 0,
                       seen);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      const C factor = C(1) / total[r];
      unpack_rows(y_, {l.y_offset(b, head) + (block * kBlock + r) * l.heads * l.size, 0, 1}, sum + r * l.padded, l,
                  factor);
      lse_.as<C>()[l.stat_offset(b, head) + block * kBlock + r] = greatest[r] + std::log(total[r]);
    }
  }

  // Turns a row of scores into exp(score - greatest) and rescales what was summed under a smaller greatest score.
  void soften_row(C* row, int64_t visible, int64_t columns, C& greatest, C& total, C* sum, bool is_first) const {
    for (int64_t i = visible; i < columns; ++i) row[i] = -std::numeric_limits<C>::infinity();
    C most = greatest;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < columns; ++i) most = std::max(most, row[i]);
    C added = 0;
#pragma omp simd reduction(+ : added)
    for (int64_t i = 0; i < columns; ++i) {
      row[i] = math::exp(row[i] - most);
      added += row[i];
    }
    if (!is_first && most > greatest) {
      const C factor = math::exp(greatest - most);
      total *= factor;
#pragma omp simd
      for (int64_t d = 0; d < layout_.padded; ++d) sum[d] *= factor;
    }
    greatest = most;
    total += added;
  }

  const Accumulator y_;
  const View& lse_;
  const ConstView& qkv_;
  const Layout layout_;
  const C scale_;
};

// --- backward ---

// With p = exp(s - lse), dp = dy v^T, delta = rowsum(dy * y): ds = p (dp - delta), and
// dv = p^T dy, dk = ds^T (scale q), dq = scale ds k.
template <class C>
class Backward {
 public:
  Backward(Acc dqkv, In dy, In y, In lse, In qkv, const AttentionOptions& options)
      : dqkv_(dqkv),
        dy_(dy),
        y_(y),
        lse_(lse),
        qkv_(qkv),
        layout_(qkv, options, Simd<C>::kColumns),
        scale_(static_cast<C>(options.scale)) {
    // Not of the number of threads: the sums over parts give the same bits for any.
    constexpr int64_t kWantedUnits = 16;
    const int64_t wanted = (kWantedUnits + layout_.pairs() - 1) / std::max<int64_t>(1, layout_.pairs());
    parts_ = std::max<int64_t>(1, std::min((layout_.blocks + 1) / 2, wanted));
  }

  void run() {
    const Layout& l = layout_;
    const int64_t rows = l.group() * l.blocks * kBlock;
    const int64_t scratch = 2 * rows * l.padded + 2 * rows + 6 * kBlock * l.padded + 2 * kBlock * kBlock;
    const int64_t dq_size = rows * l.padded;
    const int64_t units = l.pairs() * parts_;
    if (units == 0 || l.blocks == 0) return;
    C* dq = static_cast<C*>(allocate(units * dq_size * static_cast<int64_t>(sizeof(C)), "attention's gradient"));
    share_out<C>(units, scratch,
                 [&](int64_t unit, C* memory) { run_unit(unit / parts_, unit % parts_, dq + unit * dq_size, memory); });
    share_out<C>(l.pairs() * l.blocks, kBlock * l.padded, [&](int64_t unit, C*) {
      const int64_t pair = unit / l.blocks;
      sum_parts(pair, unit % l.blocks, dq + pair * parts_ * dq_size, dq_size);
    });
    release(dq);
  }

 private:
  // The packed rows of the group's queries, block after block, and the tiles at work.
  struct Memory {
    C *q, *dy, *lse, *delta, *k, *v, *kt, *vt, *dk, *dv, *p, *ds;

    Memory(C* memory, const Layout& l) {
      const int64_t rows = l.group() * l.blocks * kBlock;
      const int64_t block_size = kBlock * l.padded;
      q = memory;
      dy = q + rows * l.padded;
      lse = dy + rows * l.padded;
      delta = lse + rows;
      k = delta + rows;
      v = k + block_size;
      kt = v + block_size;
      vt = kt + block_size;
      dk = vt + block_size;
      dv = dk + block_size;
      p = dv + block_size;
      ds = p + kBlock * kBlock;
    }
  };

  void run_unit(int64_t pair, int64_t part, C* dq, C* scratch) const {
    const Layout& l = layout_;
    const int64_t b = pair / l.kv_heads, kv_head = pair % l.kv_heads;
    const int64_t block_size = kBlock * l.padded;
    const Memory m(scratch, l);
    for (int64_t g = 0; g < l.group(); ++g) {
      for (int64_t block = 0; block < l.blocks; ++block) pack_queries(b, kv_head * l.group() + g, g, block, m);
    }
    std::fill(dq, dq + l.group() * l.blocks * block_size, C(0));
    for (int64_t block = 0; block < l.blocks; ++block) {
      if (!is_in_part(block, l.blocks, part, parts_)) continue;
      const int64_t start = block * kBlock * l.qkv_width();
      const Rows k_rows{l.qkv_offset(b, l.heads + kv_head) + start, l.qkv_width(), l.rows_in(block)};
      const Rows v_rows{k_rows.offset + l.kv_heads * l.size, k_rows.step, k_rows.count};
      pack_rows(m.k, qkv_, k_rows, l, C(1));
      pack_rows(m.v, qkv_, v_rows, l, C(1));
      transpose_block(m.kt, m.k, l);
      transpose_block(m.vt, m.v, l);
      std::fill(m.dk, m.dk + block_size, C(0));
      std::fill(m.dv, m.dv + block_size, C(0));
      for (int64_t g = 0; g < l.group(); ++g) {
        for (int64_t queries = block; queries < l.blocks; ++queries) {
          backward_tile(g * l.blocks + queries, queries == block, l.rows_in(queries), dq, m);
        }
      }
      unpack_rows(dqkv_, k_rows, m.dk, l, C(1));
      unpack_rows(dqkv_, v_rows, m.dv, l, C(1));
    }
  }

  void pack_queries(int64_t b, int64_t head, int64_t g, int64_t block, const Memory& m) const {
    const Layout& l = layout_;
    const int64_t count = l.rows_in(block);
    const int64_t at = (g * l.blocks + block) * kBlock;
    const Rows rows{l.y_offset(b, head) + block * kBlock * l.heads * l.size, l.heads * l.size, count};
    pack_rows(m.q + at * l.padded, qkv_, {l.qkv_offset(b, head) + block * kBlock * l.qkv_width(), l.qkv_width(), count},
              l, scale_);
    pack_rows(m.p, y_, rows, l, C(1));
    pack_rows(m.dy + at * l.padded, dy_, rows, l, C(1));
    const C* lse = lse_.as<C>() + l.stat_offset(b, head) + block * kBlock;
    for (int64_t r = 0; r < kBlock; ++r) {
      // Rows behind the last one have probability exp(0 - inf) = 0.
      m.lse[at + r] = r < count ? lse[r] : std::numeric_limits<C>::infinity();
      C dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t d = 0; d < l.padded; ++d) dot += m.p[r * l.padded + d] * m.dy[(at + r) * l.padded + d];
      m.delta[at + r] = dot;
    }
  }

  // One block of queries with one block of keys. Blocks before the diagonal are full; on it each strip of rows goes as
  // far as it sees, each strip of keys begins with the first row that sees it.
  void backward_tile(int64_t query_block, bool is_diagonal, int64_t count, C* dq, const Memory& m) const {
    const Layout& l = layout_;
    const int64_t at = query_block * kBlock;
    const C *q = m.q + at * l.padded, *dy = m.dy + at * l.padded;
    const int64_t rows = rounded_up(count, kRows);
    for (int64_t row = 0; row < rows; row += kRows) {
      const int64_t seen = is_diagonal ? row + kRows : kBlock;
      const int64_t columns = rounded_up(seen, Simd<C>::kColumns);
      C *p = m.p + row * kBlock, *ds = m.ds + row * kBlock;
      multiply_strip(p, kBlock, false, {q + row * l.padded, l.padded, 1}, m.kt, kBlock, columns, 0, l.size);
      multiply_strip(ds, kBlock, false, {dy + row * l.padded, l.padded, 1}, m.vt, kBlock, columns, 0, l.size);
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t visible = is_diagonal ? row + r + 1 : kBlock;
        soften_row(p + r * kBlock, ds + r * kBlock, visible, columns, m.lse[at + row + r], m.delta[at + row + r]);
      }
      multiply_strip(dq + (at + row) * l.padded, l.padded, true, {ds, kBlock, 1}, m.k, l.padded, l.padded, 0, seen);
    }
    for (int64_t key = 0; key < kBlock; key += kRows) {
      const int64_t first = is_diagonal ? key : 0;
      if (first >= rows) break;
      multiply_strip(m.dv + key * l.padded, l.padded, true, {m.p + key, 1, kBlock}, dy, l.padded, l.padded, first,
                     rows);
      multiply_strip(m.dk + key * l.padded, l.padded, true, {m.ds + key, 1, kBlock}, q, l.padded, l.padded, first,
                     rows);
    }
  }

  static void soften_row(C* p, C* ds, int64_t visible, int64_t columns, C lse, C delta) {
    for (int64_t i = visible; i < columns; ++i) p[i] = -std::numeric_limits<C>::infinity();
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      p[i] = math::exp(p[i] - lse);
      ds[i] = p[i] * (ds[i] - delta);
    }
  }

  void sum_parts(int64_t pair, int64_t block, C* dq, int64_t dq_size) const {
    const Layout& l = layout_;
    const int64_t b = pair / l.kv_heads, kv_head = pair % l.kv_heads;
    for (int64_t g = 0; g < l.group(); ++g) {
      C* sum = dq + (g * l.blocks + block) * kBlock * l.padded;
      for (int64_t part = 1; part < parts_; ++part) {
        const C* other = sum + part * dq_size;
#pragma omp simd
        for (int64_t i = 0; i < kBlock * l.padded; ++i) sum[i] += other[i];
      }
      const int64_t offset = l.qkv_offset(b, kv_head * l.group() + g) + block * kBlock * l.qkv_width();
      unpack_rows(dqkv_, {offset, l.qkv_width(), l.rows_in(block)}, sum, l, scale_);
    }
  }

  const Accumulator& dqkv_;
  const ConstView &dy_, &y_, &lse_, &qkv_;
  const Layout layout_;
  const C scale_;
  int64_t parts_ = 1;
};

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::attention_fwd(Out y, Out lse, In qkv, AttentionOptions options) {
  if (qkv.dtype == Dtype::f64) return Forward<double>(y, lse, qkv, options).run();
  Forward<float>(y, lse, qkv, options).run();
}

void cpu::TAPER_ISA::attention_bwd(Acc dqkv, In dy, In y, In lse, In qkv, AttentionOptions options) {
  if (qkv.dtype == Dtype::f64) return Backward<double>(dqkv, dy, y, lse, qkv, options).run();
  Backward<float>(dqkv, dy, y, lse, qkv, options).run();
}

}  // namespace taper
