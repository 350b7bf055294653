// Blocked causal attention with the online softmax of FlashAttention (Dao et al., arXiv 2205.14135), on CUDA cores.
#include <limits>

#include "engine/kernels/cuda/attention_tiles.h"

namespace taper::cuda {
namespace {

template <class T>
struct Arguments {
  T* y;
  Compute<T>* lse;
  const T* qkv;
  AttentionLayout l;
  Compute<T> scale;
};

// A block's queries against the keys that they see, for one chunk of the values' columns.
template <class T, class Tile>
class Queries {
 public:
  using C = Compute<T>;

  __device__ Queries(const Arguments<T>& a, C* shared)
      : a_(a), q_(shared), keys_(q_ + Tile::kRowTile), p_(keys_ + Tile::kRowTile) {
    const int64_t pairs = a.l.batch * a.l.heads, pair = blockIdx.x % pairs;
    block_ = a.l.blocks(Tile::kTile) - 1 - blockIdx.x / pairs;  // the longest first
    b_ = pair / a.l.heads;
    head_ = pair % a.l.heads;
    kv_head_ = head_ / a.l.group();
    clear<Tile>(sums_);
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      greatest_[i] = -std::numeric_limits<C>::infinity();
      total_[i] = 0;
    }
  }

  __device__ void run() {
    const int chunks = Tile::chunks(a_.l.size), value_chunk = static_cast<int>(blockIdx.z);
    if (chunks == 1) load_tile<Tile>(q_, rows(head_, block_), 0, a_.scale);
    for (int64_t key_block = 0; key_block <= block_; ++key_block) {
      typename Tile::Scores scores = {};
      for (int chunk = 0; chunk < chunks; ++chunk) {
        __syncthreads();  // what reads the tiles is done
        if (chunks > 1) load_tile<Tile>(q_, rows(head_, block_), chunk, a_.scale);
        load_tile<Tile>(keys_, rows(a_.l.key_head(kv_head_), key_block), chunk, C(1));
        __syncthreads();
        add_scores<Tile>(scores, q_, keys_, columns_of<Tile>(a_.l.size, chunk));
      }
      soften(scores, key_block == block_);
      store_scores<Tile>(p_, scores);
      __syncthreads();
      load_tile<Tile>(keys_, rows(a_.l.value_head(kv_head_), key_block), value_chunk, C(1));
      __syncthreads();
      add_product<Tile, false>(sums_, p_, keys_, Tile::kTile);
    }
    write(value_chunk);
  }

 private:
  __device__ HeadRows<T> rows(int64_t head, int64_t block) const {
    const int64_t first = block * Tile::kTile, width = a_.l.qkv_width();
    return {a_.qkv + a_.l.qkv_offset(b_, head) + first * width, width, a_.l.tokens - first, a_.l.size};
  }

  // Scores become exp(score - greatest); what was summed under a smaller greatest score is rescaled. A row is in the
  // hands of 16 neighbouring lanes.
  __device__ void soften(typename Tile::Scores& scores, bool is_diagonal) {
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      C most = greatest_[i];
      GPU_UNROLL
      for (int j = 0; j < Tile::kKeys; ++j) {
        if (is_diagonal && Tile::key(j) > Tile::row(i)) scores[i][j] = -std::numeric_limits<C>::infinity();
        most = scores[i][j] > most ? scores[i][j] : most;
      }
      most = gpu::warp_max<kSide>(most);
      const C factor = std::exp(greatest_[i] - most);
      greatest_[i] = most;
      C sum = 0;
      GPU_UNROLL
      for (int j = 0; j < Tile::kKeys; ++j) {
        scores[i][j] = std::exp(scores[i][j] - most);
        sum += scores[i][j];
      }
      total_[i] = total_[i] * factor + gpu::warp_sum<kSide>(sum);
      GPU_UNROLL
      for (int n = 0; n < Tile::kColumnPacks; ++n) {
        GPU_UNROLL
        for (int j = 0; j < Tile::kPack; ++j) sums_[i][n][j] *= factor;
      }
    }
  }

  __device__ void write(int value_chunk) {
    const int64_t first = block_ * Tile::kTile, count = a_.l.tokens - first;
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      const C factor = C(1) / total_[i];
      GPU_UNROLL
      for (int n = 0; n < Tile::kColumnPacks; ++n) {
        GPU_UNROLL
        for (int j = 0; j < Tile::kPack; ++j) sums_[i][n][j] *= factor;
      }
      if (value_chunk == 0 && threadIdx.x == 0 && Tile::row(i) < count) {
        a_.lse[a_.l.stat_offset(b_, head_) + first + Tile::row(i)] = greatest_[i] + std::log(total_[i]);
      }
    }
    const int64_t width = a_.l.y_width();
    put_rows<Tile>(a_.y + a_.l.y_offset(b_, head_) + first * width, width, count, a_.l.size, value_chunk, sums_, C(1),
                   false);
  }

  const Arguments<T>& a_;
  C *q_, *keys_, *p_;
  int64_t block_, b_, head_, kv_head_;
  typename Tile::Sums sums_;
  C greatest_[Tile::kRows], total_[Tile::kRows];
};

template <class T, class Tile>
__global__ void __launch_bounds__(kTileThreads, 2) attend(Arguments<T> a) {
  Queries<T, Tile>(a, gpu::dyn_shared<Compute<T>>()).run();
}

template <class T, class Tile>
void launch_attend(const Arguments<T>& a) {
  const AttentionLayout& l = a.l;
  const size_t shared = (2 * Tile::kRowTile + Tile::kScoreTile) * sizeof(Compute<T>);
  const gpu::Grid grid(l.blocks(Tile::kTile) * l.batch * l.heads, 1, Tile::chunks(l.size));
  gpu::launch(attend<T, Tile>, grid, dim3(kSide, kSide), shared, gpu::stream(), a);
}

}  // namespace

void attend_plain(const AttentionForward& f, Dtype dtype) {
  with_float_type(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    const Arguments<T> a{static_cast<T*>(f.y), static_cast<C*>(f.lse), static_cast<const T*>(f.qkv), f.layout,
                         static_cast<C>(f.scale)};
    if constexpr (std::is_same_v<C, double>) {
      launch_attend<T, Tiles<C, 32, 64>>(a);
    } else if constexpr (std::is_same_v<T, bf16>) {
      launch_attend<T, Tiles<C, 64, 64>>(a);  // what suits tensor cores is not here
    } else if (f.layout.size <= 32) {
      launch_attend<T, Tiles<C, 64, 32>>(a);
    } else if (f.layout.size <= 64) {
      launch_attend<T, Tiles<C, 64, 64>>(a);
    } else {
      launch_attend<T, Tiles<C, 64, 128>>(a);
    }
  });
}

}  // namespace taper::cuda
