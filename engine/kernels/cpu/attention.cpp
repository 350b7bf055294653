// Blocked causal attention with the online softmax of FlashAttention (Dao et al., arXiv 2205.14135; the backward's
// order, key blocks outside and queries inside, is FlashAttention-2's, arXiv 2307.08691). Scores exist only as one
// kBlock x kBlock tile at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/cpu/attention_blocks.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

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
    const int64_t scratch = 2 * keys + 2 * kBlock * layout_.padded + kBlock * kBlock + kBlock * (1 + kColumns);
    share_out<C>(layout_.pairs() * parts, scratch, [&](int64_t unit, C* memory) {
      run_unit(unit / parts, unit % parts, parts, memory, memory + keys, memory + 2 * keys);
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
    std::fill(total, total + kBlock * kColumns, C(0));
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
          soften_row(tile + r * kBlock, visible, columns, greatest[row + r], total + (row + r) * kColumns,
                     sum + (row + r) * l.padded, key_block == 0);
        }
        multiply_strip(sum + row * l.padded, l.padded, key_block > 0, {tile, kBlock, 1}, v_block, l.padded, l.padded, 0,
                       seen);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      const C whole = sum_lanes(total + r * kColumns), factor = C(1) / whole;
      lse_.as<C>()[l.stat_offset(b, head) + block * kBlock + r] = greatest[r] + std::log(whole);
#pragma omp simd
      for (int64_t d = 0; d < l.padded; ++d) sum[r * l.padded + d] *= factor;
    }
    const int64_t start = l.y_offset(b, head) + block * kBlock * l.heads * l.size;
    unpack_rows(y_, {start, l.heads * l.size, count}, sum, l, C(1));
  }

  // Turns a row of scores into exp(score - greatest) and rescales what was summed under a smaller greatest score. Sums
  // are kept by lane and added up at the end.
  void soften_row(C* row, int64_t visible, int64_t columns, C& greatest, C* total, C* sum, bool is_first) const {
    for (int64_t i = visible; i < columns; ++i) row[i] = -std::numeric_limits<C>::infinity();
    const C most = std::max(greatest, greatest_of(row, columns));
    if (most > greatest) {
      const C factor = math::exp(greatest - most);
#pragma omp simd
      for (int64_t i = 0; i < kColumns; ++i) total[i] *= factor;
      if (!is_first) {
#pragma omp simd
        for (int64_t d = 0; d < layout_.padded; ++d) sum[d] *= factor;
      }
      greatest = most;
    }
    for (int64_t column = 0; column < columns; column += kColumns) {
#pragma omp simd
      for (int64_t i = 0; i < kColumns; ++i) {
        const C p = math::exp(row[column + i] - most);
        row[column + i] = p;
        total[i] += p;
      }
    }
  }

  static C greatest_of(const C* row, int64_t columns) {
    C lane[kColumns];
    std::copy(row, row + kColumns, lane);
    for (int64_t column = kColumns; column < columns; column += kColumns) {
#pragma omp simd
      for (int64_t i = 0; i < kColumns; ++i) lane[i] = lane[i] > row[column + i] ? lane[i] : row[column + i];
    }
    return combine_lanes(lane, [](C a, C b) { return a > b ? a : b; });
  }

  static constexpr int64_t kColumns = Simd<C>::kColumns;
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
    const int64_t dq_size = rows * l.padded;
    const int64_t scratch = 2 * rows * l.padded + 2 * rows + 6 * kBlock * l.padded + 2 * kBlock * kBlock;
    const int64_t units = l.blocks == 0 ? 0 : l.pairs() * parts_;
    if (parts_ == 1) {
      share_out<C>(units, scratch + dq_size, [&](int64_t pair, C* memory) {
        C* dq = memory + scratch;
        run_unit(pair, 0, dq, memory);
        for (int64_t block = 0; block < l.blocks; ++block) sum_parts(pair, block, dq, dq_size);
      });
      return;
    }
    const Scratch<C> dq(units * dq_size);
    share_out<C>(units, scratch, [&](int64_t unit, C* memory) {
      run_unit(unit / parts_, unit % parts_, dq.get() + unit * dq_size, memory);
    });
    share_out<C>(l.pairs() * l.blocks, 0, [&](int64_t unit, C*) {
      const int64_t pair = unit / l.blocks;
      sum_parts(pair, unit % l.blocks, dq.get() + pair * parts_ * dq_size, dq_size);
    });
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
      m.delta[at + r] = dot(m.p + r * l.padded, m.dy + (at + r) * l.padded, l.padded);
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
