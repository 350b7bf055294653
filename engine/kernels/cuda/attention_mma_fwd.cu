// Blocked causal attention on tensor cores, after FlashAttention-2 (Dao, arXiv 2307.08691): a warp has 16 queries,
// whose scores, probabilities and sums stay in its registers; the next tiles of keys and of values are on their way
// while the present ones are multiplied.
#include <limits>

#include "engine/kernels/cuda/attention_mma.h"

namespace taper::cuda {
namespace {

constexpr int kKeys = 64;  // of a tile

struct Arguments {
  bf16* y;
  float* lse;
  const bf16* qkv;
  AttentionLayout l;
  float scale;  // times log2 e: probabilities are powers of 2
};

template <class Tile>
class Queries {
 public:
  __device__ Queries(const Arguments& a, bf16* shared)
      : a_(a), q_(shared), k_(q_ + Tile::elements(kMmaBlock)), v_(k_ + 2 * Tile::elements(kKeys)) {
    const int64_t pairs = a.l.batch * a.l.heads, pair = blockIdx.x % pairs;
    block_ = a.l.blocks(kMmaBlock) - 1 - blockIdx.x / pairs;  // the longest first
    b_ = pair / a.l.heads;
    head_ = pair % a.l.heads;
    clear<Tile>(sums_);
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      greatest_[half] = -std::numeric_limits<float>::infinity();
      total_[half] = 0;
    }
  }

  static size_t shared_bytes() {
    return static_cast<size_t>(Tile::elements(kMmaBlock) + 4 * Tile::elements(kKeys)) * sizeof(bf16);
  }

  __device__ void run() {
    const int64_t kv_head = head_ / a_.l.group(), k_head = a_.l.key_head(kv_head), v_head = a_.l.value_head(kv_head);
    copy(q_, head_, block_);
    copy(k_, k_head, 0);
    gpu::commit_copies();
    copy(v_, v_head, 0);
    gpu::commit_copies();
    for (int64_t tile = 0; tile <= block_; ++tile) {
      const int now = static_cast<int>(tile % 2) * Tile::elements(kKeys), next = Tile::elements(kKeys) - now;
      gpu::wait_for_copies<1>();  // all but the values
      __syncthreads();
      if (tile < block_) copy(k_ + next, k_head, tile + 1);
      gpu::commit_copies();
      float scores[kKeys / 8][4] = {};
      add_row_products<Tile, kKeys>(scores, q_, warp_of_block() * kMmaRows, k_ + now);
      if (tile == block_) hide(scores);
      soften(scores);
      gpu::wait_for_copies<1>();  // all but the next keys
      __syncthreads();
      if (tile < block_) copy(v_ + next, v_head, tile + 1);
      gpu::commit_copies();
      add_weighted_rows<Tile, kKeys>(sums_, scores, v_ + now);
    }
    gpu::wait_for_copies<0>();
    write();
  }

 private:
  __device__ void copy(bf16* tile, int64_t head, int64_t block) const {
    static_assert(kKeys == kMmaBlock, "one count of rows for tiles of both");
    const int64_t first = block * kKeys, width = a_.l.qkv_width();
    copy_rows<Tile, kKeys>(tile, a_.qkv + a_.l.qkv_offset(b_, head) + first * width, width, a_.l.tokens - first,
                           a_.l.size);
  }

  // Scores become 2^(scale (score - greatest)); what was summed under a smaller greatest score is rescaled. A row is in
  // the hands of 4 neighbouring lanes.
  __device__ void soften(float (&scores)[kKeys / 8][4]) {
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = greatest_[half];
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      most = gpu::warp_max<4>(most);
      const float shift = most * a_.scale, factor = exp2f(greatest_[half] * a_.scale - shift);
      greatest_[half] = most;
      float sum = 0;
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[n][j] = exp2f(scores[n][j] * a_.scale - shift);
          sum += scores[n][j];
        }
      }
      total_[half] = total_[half] * factor + sum;
      GPU_UNROLL
      for (int n = 0; n < Tile::kGroups; ++n) {
        sums_[n][2 * half] *= factor;
        sums_[n][2 * half + 1] *= factor;
      }
    }
  }

  // On the diagonal a query sees the keys up to its own.
  __device__ static void hide(float (&scores)[kKeys / 8][4]) {
    const int lane = lane_of_warp(), row = warp_of_block() * kMmaRows + lane / 4, column = 2 * (lane % 4);
    GPU_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (8 * n + column + j % 2 > row + j / 2 * 8) scores[n][j] = -std::numeric_limits<float>::infinity();
      }
    }
  }

  __device__ void write() {
    const int64_t first = block_ * kMmaBlock, count = a_.l.tokens - first, width = a_.l.y_width();
    float factors[2];
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float total = gpu::warp_sum<4>(total_[half]);
      const int lane = lane_of_warp(), row = warp_of_block() * kMmaRows + lane / 4 + 8 * half;
      factors[half] = 1.0f / total;
      if (lane % 4 == 0 && row < count) {
        a_.lse[a_.l.stat_offset(b_, head_) + first + row] = greatest_[half] * (a_.scale / kLog2E) + std::log(total);
      }
    }
    stage_rows<Tile>(q_, sums_, factors[0], factors[1]);  // the warp's own queries are read no more
    __syncwarp();
    write_rows<Tile>(a_.y + a_.l.y_offset(b_, head_) + first * width, width, count, a_.l.size, q_, false);
  }

  const Arguments& a_;
  bf16 *q_, *k_, *v_;  // two tiles of keys, two of values: the present and the next
  int64_t block_, b_, head_;
  typename Tile::Sums sums_;
  float greatest_[2];
  float total_[2];  // of the lane's own columns
};

template <class Tile>
__global__ void __launch_bounds__(kMmaThreads, Tile::kBlocks) attend(Arguments a) {
  Queries<Tile>(a, gpu::dyn_shared<bf16>()).run();
}

template <class Tile>
void launch_attend(const Arguments& a) {
  const gpu::Grid grid(a.l.blocks(kMmaBlock) * a.l.batch * a.l.heads);
  gpu::launch(attend<Tile>, grid, kMmaThreads, Queries<Tile>::shared_bytes(), gpu::stream(), a);
}

}  // namespace

void attend_mma(const AttentionForward& f) {
  const Arguments a{static_cast<bf16*>(f.y), static_cast<float*>(f.lse), static_cast<const bf16*>(f.qkv), f.layout,
                    static_cast<float>(f.scale) * kLog2E};
  if (f.layout.size <= 32) return launch_attend<MmaTile<32>>(a);
  if (f.layout.size <= 64) return launch_attend<MmaTile<64>>(a);
  launch_attend<MmaTile<128>>(a);
}

}  // namespace taper::cuda
