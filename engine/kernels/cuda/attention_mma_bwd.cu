// The backward pass on tensor cores; the formulas and the division into two kernels are attention_plain_bwd.cu's. A
// warp has 16 keys, or 16 queries; p and ds are made in registers, where they are the left operands of what follows.
#include "engine/kernels/cuda/attention_mma.h"

namespace taper::cuda {
namespace {

struct Arguments {
  void* dqkv;
  bool is_f32, add;
  const bf16* dy;
  const float* lse;
  const float* delta;
  const bf16* qkv;
  AttentionLayout l;
  float scale;
  float scale_log2;  // times log2 e
};

// Where the rows of one batch entry begin.
struct Rows {
  const Arguments& a;
  int64_t b;

  template <class Tile, int kRows>
  __device__ void copy_qkv(bf16* tile, int64_t head, int64_t first) const {
    const int64_t width = a.l.qkv_width();
    copy_rows<Tile, kRows>(tile, a.qkv + a.l.qkv_offset(b, head) + first * width, width, a.l.tokens - first, a.l.size);
  }
  template <class Tile, int kRows>
  __device__ void copy_dy(bf16* tile, int64_t head, int64_t first) const {
    const int64_t width = a.l.y_width();
    copy_rows<Tile, kRows>(tile, a.dy + a.l.y_offset(b, head) + first * width, width, a.l.tokens - first, a.l.size);
  }
  // `staging` is a tile whose rows of this warp nobody reads any more.
  template <class Tile>
  __device__ void put(int64_t head, int64_t first, const typename Tile::Sums& sums, float factor, bf16* staging) const {
    const int64_t width = a.l.qkv_width(), count = a.l.tokens - first, at = a.l.qkv_offset(b, head) + first * width;
    if (a.is_f32) {
      write_rows<Tile>(static_cast<float*>(a.dqkv) + at, width, count, a.l.size, sums, factor, a.add);
      return;
    }
    __syncwarp();
    stage_rows<Tile>(staging, sums, factor, factor);
    __syncwarp();
    write_rows<Tile>(static_cast<bf16*>(a.dqkv) + at, width, count, a.l.size, staging, a.add);
  }
};

// ---- dk and dv: a block of keys against the queries that see them, a tile of kQueries at a time ----
template <class Tile, int kQueries>
class Keys {
 public:
  __device__ Keys(const Arguments& a, bf16* shared) : a_(a) {
    k_ = shared;
    v_ = k_ + Tile::elements(kMmaBlock);
    q_ = v_ + Tile::elements(kMmaBlock);
    dy_ = q_ + 2 * Tile::elements(kQueries);
    stats_ = reinterpret_cast<float*>(dy_ + 2 * Tile::elements(kQueries));
    clear<Tile>(dk_);
    clear<Tile>(dv_);
  }

  static size_t shared_bytes() {
    return static_cast<size_t>(2 * Tile::elements(kMmaBlock) + 4 * Tile::elements(kQueries)) * sizeof(bf16) +
           4 * kQueries * sizeof(float);
  }

  __device__ void run(int64_t b, int64_t kv_head, int64_t block) {
    const Rows rows{a_, b};
    first_ = block * kMmaBlock;
    const int64_t first_tile = first_ / kQueries, tiles = a_.l.blocks(kQueries) - first_tile;
    const int64_t total = a_.l.group() * tiles;
    rows.copy_qkv<Tile, kMmaBlock>(k_, a_.l.key_head(kv_head), first_);
    rows.copy_qkv<Tile, kMmaBlock>(v_, a_.l.value_head(kv_head), first_);
    const auto copy = [&](int64_t n) {
      const int64_t head = kv_head * a_.l.group() + n / tiles, first = (first_tile + n % tiles) * kQueries;
      copy_queries(rows, head, first, static_cast<int>(n % 2));
    };
    copy(0);
    gpu::commit_copies();
    for (int64_t n = 0; n < total; ++n) {
      if (n + 1 < total) copy(n + 1);
      gpu::commit_copies();
      gpu::wait_for_copies<1>();
      __syncthreads();
      add_tile((first_tile + n % tiles) * kQueries, static_cast<int>(n % 2));
      __syncthreads();  // before the next copy overwrites
    }
    rows.put<Tile>(a_.l.key_head(kv_head), first_, dk_, a_.scale, k_);
    rows.put<Tile>(a_.l.value_head(kv_head), first_, dv_, 1.0f, v_);
  }

 private:
  // The queries of one tile with dy, lse (in powers of 2) and delta.
  __device__ void copy_queries(const Rows& rows, int64_t head, int64_t first, int buffer) const {
    rows.copy_qkv<Tile, kQueries>(q_ + buffer * Tile::elements(kQueries), head, first);
    rows.copy_dy<Tile, kQueries>(dy_ + buffer * Tile::elements(kQueries), head, first);
    const int64_t at = a_.l.stat_offset(rows.b, head) + first;
    float *lse = stats_ + 2 * kQueries * buffer, *delta = lse + kQueries;
    for (int i = static_cast<int>(threadIdx.x); i < kQueries; i += kMmaThreads) {
      const bool exists = first + i < a_.l.tokens;
      lse[i] = exists ? a_.lse[at + i] * kLog2E : 0.0f;
      delta[i] = exists ? a_.delta[at + i] : 0.0f;
    }
  }

  // Rows of p and ds are keys here, columns queries.
  __device__ void add_tile(int64_t first_query, int buffer) {
    const int lane = lane_of_warp(), own = warp_of_block() * kMmaRows;
    const float *lse = stats_ + 2 * kQueries * buffer, *delta = lse + kQueries;
    float p[kQueries / 8][4] = {}, ds[kQueries / 8][4] = {};
    add_row_products<Tile, kQueries>(p, k_, own, q_ + buffer * Tile::elements(kQueries));
    add_row_products<Tile, kQueries>(ds, v_, own, dy_ + buffer * Tile::elements(kQueries));
    // Rows that do not exist are zeros in all that they meet: only later keys must be hidden.
    const int64_t ahead = first_query - first_;
    const bool hides = ahead < kMmaBlock;
    const int first_seen = hides ? static_cast<int>(ahead) - own - lane / 4 : 0;
    GPU_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + 2 * (lane % 4) + i % 2;
        p[n][i] = exp2f(p[n][i] * a_.scale_log2 - lse[column]);
        if (hides && first_seen + column < i / 2 * 8) p[n][i] = 0;
        ds[n][i] = p[n][i] * (ds[n][i] - delta[column]);
      }
    }
    add_weighted_rows<Tile, kQueries>(dv_, p, dy_ + buffer * Tile::elements(kQueries));
    add_weighted_rows<Tile, kQueries>(dk_, ds, q_ + buffer * Tile::elements(kQueries));
  }

  const Arguments& a_;
  bf16 *k_, *v_, *q_, *dy_;  // of queries and dy two tiles each: the present and the next
  float* stats_;             // of each buffer: lse, delta
  int64_t first_ = 0;
  typename Tile::Sums dk_, dv_;
};

template <class Tile, int kQueries>
__global__ void __launch_bounds__(kMmaThreads, Tile::kBlocks) backward_keys(Arguments a) {
  const int64_t pairs = a.l.batch * a.l.kv_heads, pair = blockIdx.x % pairs;
  Keys<Tile, kQueries> keys(a, gpu::dyn_shared<bf16>());
  keys.run(pair / a.l.kv_heads, pair % a.l.kv_heads, blockIdx.x / pairs);
}

// ---- dq: a block of queries against the keys that they see ----
template <class Tile, int kKeys>
class Queries {
 public:
  __device__ Queries(const Arguments& a, bf16* shared) : a_(a) {
    q_ = shared;
    dy_ = q_ + Tile::elements(kMmaBlock);
    k_ = dy_ + Tile::elements(kMmaBlock);
    v_ = k_ + 2 * Tile::elements(kKeys);
    clear<Tile>(dq_);
  }

  static size_t shared_bytes() {
    return static_cast<size_t>(2 * Tile::elements(kMmaBlock) + 4 * Tile::elements(kKeys)) * sizeof(bf16);
  }

  __device__ void run(int64_t b, int64_t head, int64_t block) {
    const Rows rows{a_, b};
    const int64_t kv_head = head / a_.l.group(), tiles = (block + 1) * kMmaBlock / kKeys;
    first_ = block * kMmaBlock;
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_ + warp_of_block() * kMmaRows + lane_of_warp() / 4 + 8 * half;
      const bool exists = row < a_.l.tokens;
      lse_[half] = exists ? a_.lse[a_.l.stat_offset(b, head) + row] * kLog2E : 0.0f;
      delta_[half] = exists ? a_.delta[a_.l.stat_offset(b, head) + row] : 0.0f;
    }
    const auto copy = [&](int64_t tile) {
      rows.copy_qkv<Tile, kKeys>(k_ + tile % 2 * Tile::elements(kKeys), a_.l.key_head(kv_head), tile * kKeys);
      rows.copy_qkv<Tile, kKeys>(v_ + tile % 2 * Tile::elements(kKeys), a_.l.value_head(kv_head), tile * kKeys);
    };
    rows.copy_qkv<Tile, kMmaBlock>(q_, head, first_);
    rows.copy_dy<Tile, kMmaBlock>(dy_, head, first_);
    copy(0);
    gpu::commit_copies();
    for (int64_t tile = 0; tile < tiles; ++tile) {
      if (tile + 1 < tiles) copy(tile + 1);
      gpu::commit_copies();
      gpu::wait_for_copies<1>();
      __syncthreads();
      add_tile(tile * kKeys, static_cast<int>(tile % 2));
      __syncthreads();
    }
    rows.put<Tile>(head, first_, dq_, a_.scale, q_);
  }

 private:
  __device__ void add_tile(int64_t first_key, int buffer) {
    const int lane = lane_of_warp(), own = warp_of_block() * kMmaRows;
    float p[kKeys / 8][4] = {}, ds[kKeys / 8][4] = {};
    add_row_products<Tile, kKeys>(p, q_, own, k_ + buffer * Tile::elements(kKeys));
    add_row_products<Tile, kKeys>(ds, dy_, own, v_ + buffer * Tile::elements(kKeys));
    const int64_t ahead = first_ - first_key;
    const bool hides = ahead < kKeys;
    const int last_seen = hides ? static_cast<int>(ahead) + own + lane / 4 : 0;
    GPU_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        float weight = exp2f(p[n][i] * a_.scale_log2 - lse_[i / 2]);
        if (hides && 8 * n + 2 * (lane % 4) + i % 2 > last_seen + i / 2 * 8) weight = 0;
        ds[n][i] = weight * (ds[n][i] - delta_[i / 2]);
      }
    }
    add_weighted_rows<Tile, kKeys>(dq_, ds, k_ + buffer * Tile::elements(kKeys));
  }

  const Arguments& a_;
  bf16 *q_, *dy_, *k_, *v_;  // of keys and values two tiles each
  int64_t first_ = 0;
  float lse_[2], delta_[2];
  typename Tile::Sums dq_;
};

template <class Tile, int kKeys>
__global__ void __launch_bounds__(kMmaThreads, Tile::kBlocks) backward_queries(Arguments a) {
  const int64_t pairs = a.l.batch * a.l.heads, pair = blockIdx.x % pairs;
  Queries<Tile, kKeys> queries(a, gpu::dyn_shared<bf16>());
  queries.run(pair / a.l.heads, pair % a.l.heads, a.l.blocks(kMmaBlock) - 1 - blockIdx.x / pairs);
}

// kRows: of the tiles that pass by.
template <class Tile, int kRows>
void launch_backward(const Arguments& a) {
  const int64_t blocks = a.l.blocks(kMmaBlock) * a.l.batch;
  gpu::launch(backward_keys<Tile, kRows>, gpu::Grid(blocks * a.l.kv_heads), kMmaThreads,
              Keys<Tile, kRows>::shared_bytes(), gpu::stream(), a);
  gpu::launch(backward_queries<Tile, kRows>, gpu::Grid(blocks * a.l.heads), kMmaThreads,
              Queries<Tile, kRows>::shared_bytes(), gpu::stream(), a);
}

}  // namespace

void attend_mma_backward(const AttentionBackward& b) {
  const Arguments a{b.dqkv,
                    b.is_dqkv_f32,
                    b.add,
                    static_cast<const bf16*>(b.dy),
                    static_cast<const float*>(b.lse),
                    static_cast<const float*>(b.delta),
                    static_cast<const bf16*>(b.qkv),
                    b.layout,
                    static_cast<float>(b.scale),
                    static_cast<float>(b.scale) * kLog2E};
  if (b.layout.size <= 32) return launch_backward<MmaTile<32>, 64>(a);
  if (b.layout.size <= 64) return launch_backward<MmaTile<64>, 64>(a);
  launch_backward<MmaTile<128>, 32>(a);
}

}  // namespace taper::cuda
