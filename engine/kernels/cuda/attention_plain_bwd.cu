// The backward pass of blocked causal attention on CUDA cores. With p = exp(s - lse), dp = dy v^T and delta the row
// sums of dy y: ds = p (dp - delta), dv = p^T dy, dk = ds^T (scale q), dq = scale ds k. One kernel has blocks of keys
// and sums dk and dv over the queries, one has blocks of queries and sums dq over the keys: the scores are computed
// twice, and no sum needs an atomic addition.
#include "engine/kernels/cuda/attention_tiles.h"

namespace taper::cuda {
namespace {

template <class T, class G>
struct Arguments {
  G* dqkv;
  bool add;
  const T* dy;
  const Compute<T>* lse;
  const Compute<T>* delta;
  const T* qkv;
  AttentionLayout l;
  Compute<T> scale;
};

// One tile of queries (of a head) against one of keys, and what both kernels know of it.
template <class T, class G, class Tile>
class Pair {
 public:
  using C = Compute<T>;

  __device__ Pair(const Arguments<T, G>& a, C* shared, int64_t b)
      : a_(a),
        b_(b),
        q_(shared),
        dy_(q_ + Tile::kRowTile),
        k_(dy_ + Tile::kRowTile),
        v_(k_ + Tile::kRowTile),
        weights_(v_ + Tile::kRowTile) {}

  __device__ void load_queries(int64_t head, int64_t block, int chunk) const {
    const int64_t first = block * Tile::kTile, count = a_.l.tokens - first, width = a_.l.y_width();
    load_tile<Tile>(q_, qkv_rows(head, block), chunk, a_.scale);
    load_tile<Tile>(dy_, HeadRows<T>{a_.dy + a_.l.y_offset(b_, head) + first * width, width, count, a_.l.size}, chunk,
                    C(1));
  }
  __device__ void load_keys(int64_t kv_head, int64_t block, int chunk) const {
    load_tile<Tile>(k_, qkv_rows(a_.l.key_head(kv_head), block), chunk, C(1));
    load_tile<Tile>(v_, qkv_rows(a_.l.value_head(kv_head), block), chunk, C(1));
  }

  // p and ds of the pair. With one chunk the tiles hold the rows already.
  __device__ void scores(int64_t head, int64_t query_block, int64_t key_block, typename Tile::Scores& p,
                         typename Tile::Scores& ds) const {
    const int chunks = Tile::chunks(a_.l.size);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) {
        __syncthreads();
        load_queries(head, query_block, chunk);
        load_keys(head / a_.l.group(), key_block, chunk);
        __syncthreads();
      }
      const int columns = columns_of<Tile>(a_.l.size, chunk);
      add_scores<Tile>(p, q_, k_, columns);
      add_scores<Tile>(ds, dy_, v_, columns);
    }
    const int64_t first = query_block * Tile::kTile, at = a_.l.stat_offset(b_, head) + first;
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      const int row = Tile::row(i);
      const bool exists = row < a_.l.tokens - first;
      const C lse = exists ? a_.lse[at + row] : C(0), delta = exists ? a_.delta[at + row] : C(0);
      GPU_UNROLL
      for (int j = 0; j < Tile::kKeys; ++j) {
        const bool is_seen = exists && (query_block > key_block || Tile::key(j) <= row);
        p[i][j] = is_seen ? std::exp(p[i][j] - lse) : C(0);
        ds[i][j] = p[i][j] * (ds[i][j] - delta);
      }
    }
  }

  // p or ds where all threads can read it; the one before is read no more.
  __device__ const C* share(const typename Tile::Scores& scores) const {
    __syncthreads();
    store_scores<Tile>(weights_, scores);
    __syncthreads();
    return weights_;
  }

  __device__ void put(int64_t head, int64_t block, int chunk, const typename Tile::Sums& sums, C factor) const {
    const int64_t first = block * Tile::kTile, width = a_.l.qkv_width();
    put_rows<Tile>(a_.dqkv + a_.l.qkv_offset(b_, head) + first * width, width, a_.l.tokens - first, a_.l.size, chunk,
                   sums, factor, a_.add);
  }

  __device__ const C* q() const { return q_; }
  __device__ const C* dy() const { return dy_; }
  __device__ const C* k() const { return k_; }

 private:
  __device__ HeadRows<T> qkv_rows(int64_t head, int64_t block) const {
    const int64_t first = block * Tile::kTile, width = a_.l.qkv_width();
    return {a_.qkv + a_.l.qkv_offset(b_, head) + first * width, width, a_.l.tokens - first, a_.l.size};
  }

  const Arguments<T, G>& a_;
  const int64_t b_;
  C *q_, *dy_, *k_, *v_, *weights_;
};

template <class T, class G, class Tile>
__global__ void __launch_bounds__(kTileThreads, 2) backward_keys(Arguments<T, G> a) {
  using C = Compute<T>;
  const int64_t pairs = a.l.batch * a.l.kv_heads, pair = blockIdx.x % pairs, kv_head = pair % a.l.kv_heads;
  const int64_t key_block = blockIdx.x / pairs;  // the first are seen by most
  const int own = static_cast<int>(blockIdx.z), chunks = Tile::chunks(a.l.size);
  const Pair<T, G, Tile> tiles(a, gpu::dyn_shared<C>(), pair / a.l.kv_heads);
  typename Tile::Sums dk, dv;
  clear<Tile>(dk);
  clear<Tile>(dv);
  if (chunks == 1) tiles.load_keys(kv_head, key_block, 0);
  for (int64_t g = 0; g < a.l.group(); ++g) {
    const int64_t head = kv_head * a.l.group() + g;
    for (int64_t block = key_block; block < a.l.blocks(Tile::kTile); ++block) {
      if (chunks == 1) {
        __syncthreads();  // what reads the tiles is done
        tiles.load_queries(head, block, 0);
        __syncthreads();
      }
      typename Tile::Scores p = {}, ds = {};
      tiles.scores(head, block, key_block, p, ds);
      if (chunks > 1) {
        __syncthreads();
        tiles.load_queries(head, block, own);
      }
      add_product<Tile, true>(dv, tiles.share(p), tiles.dy(), Tile::kTile);
      add_product<Tile, true>(dk, tiles.share(ds), tiles.q(), Tile::kTile);
    }
  }
  tiles.put(a.l.key_head(kv_head), key_block, own, dk, C(1));
  tiles.put(a.l.value_head(kv_head), key_block, own, dv, C(1));
}

template <class T, class G, class Tile>
__global__ void __launch_bounds__(kTileThreads, 2) backward_queries(Arguments<T, G> a) {
  using C = Compute<T>;
  const int64_t pairs = a.l.batch * a.l.heads, pair = blockIdx.x % pairs, head = pair % a.l.heads;
  const int64_t block = a.l.blocks(Tile::kTile) - 1 - blockIdx.x / pairs, kv_head = head / a.l.group();
  const int own = static_cast<int>(blockIdx.z), chunks = Tile::chunks(a.l.size);
  const Pair<T, G, Tile> tiles(a, gpu::dyn_shared<C>(), pair / a.l.heads);
  typename Tile::Sums dq;
  clear<Tile>(dq);
  if (chunks == 1) tiles.load_queries(head, block, 0);
  for (int64_t key_block = 0; key_block <= block; ++key_block) {
    if (chunks == 1) {
      __syncthreads();
      tiles.load_keys(kv_head, key_block, 0);
      __syncthreads();
    }
    typename Tile::Scores p = {}, ds = {};
    tiles.scores(head, block, key_block, p, ds);
    if (chunks > 1) {
      __syncthreads();
      tiles.load_keys(kv_head, key_block, own);
    }
    add_product<Tile, false>(dq, tiles.share(ds), tiles.k(), Tile::kTile);
  }
  tiles.put(head, block, own, dq, a.scale);
}

template <class T, class G, class Tile>
void launch_backward(const Arguments<T, G>& a) {
  const AttentionLayout& l = a.l;
  const size_t shared = (4 * Tile::kRowTile + Tile::kScoreTile) * sizeof(Compute<T>);
  const int64_t blocks = l.batch * l.blocks(Tile::kTile), chunks = Tile::chunks(l.size);
  const dim3 threads(kSide, kSide);
  gpu::launch(backward_keys<T, G, Tile>, gpu::Grid(blocks * l.kv_heads, 1, chunks), threads, shared, gpu::stream(), a);
  gpu::launch(backward_queries<T, G, Tile>, gpu::Grid(blocks * l.heads, 1, chunks), threads, shared, gpu::stream(), a);
}

}  // namespace

void attend_plain_backward(const AttentionBackward& b, Dtype dtype) {
  with_grad_type(dtype, b.is_dqkv_f32 ? Dtype::f32 : dtype, [&](auto type, auto grad_type) {
    using T = typename decltype(type)::type;
    using G = typename decltype(grad_type)::type;
    using C = Compute<T>;
    const Arguments<T, G> a{static_cast<G*>(b.dqkv),
                            b.add,
                            static_cast<const T*>(b.dy),
                            static_cast<const C*>(b.lse),
                            static_cast<const C*>(b.delta),
                            static_cast<const T*>(b.qkv),
                            b.layout,
                            static_cast<C>(b.scale)};
    if constexpr (std::is_same_v<C, double>) {
      launch_backward<T, G, Tiles<C, 32, 64>>(a);
    } else if constexpr (std::is_same_v<T, bf16>) {
      launch_backward<T, G, Tiles<C, 64, 64>>(a);  // what suits tensor cores is not here
    } else if (b.layout.size <= 32) {
      launch_backward<T, G, Tiles<C, 64, 32>>(a);
    } else if (b.layout.size <= 64) {
      launch_backward<T, G, Tiles<C, 64, 64>>(a);
    } else {
      launch_backward<T, G, Tiles<C, 32, 128>>(a);
    }
  });
}

}  // namespace taper::cuda
