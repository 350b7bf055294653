// Token and position embeddings. The backward gives each token that occurs one block, which takes the token's rows in
// order: no two blocks meet in a row of the gradient, and its bits depend on nothing but the input.
#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

template <class Y, class W>
__global__ void embed(Y* y, const int32_t* tokens, const W* wte, const W* wpe, int64_t window, int64_t cols) {
  using C = Compute<W>;
  const int64_t row = blockIdx.x;
  const W* token = wte + tokens[row] * cols;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
    C value = convert_to<C>(token[i]);
    if (wpe) value += convert_to<C>(wpe[row % window * cols + i]);
    y[row * cols + i] = convert_to<Y>(value);
  }
}

constexpr int kTokenThreads = 128;
constexpr int kTokenWarps = kTokenThreads / gpu::kWarp;

// Rows [begin, begin + kTokenThreads) that hold the token, in order, into `found`; returns how many.
__device__ int find_rows(int* found, const int32_t* tokens, int32_t token, int64_t begin, int64_t rows) {
  GPU_SHARED(int, counts, kTokenWarps);
  const int lane = lane_of_warp(), warp = static_cast<int>(threadIdx.x) / gpu::kWarp;
  const int64_t row = begin + threadIdx.x;
  const bool is_mine = row < rows && tokens[row] == token;
  const unsigned votes = __ballot_sync(gpu::kAllLanes, is_mine);
  if (lane == 0) counts[warp] = gpu::count_bits(votes);
  __syncthreads();  // the counts are there, and the readers of the rows found last are done
  int before = gpu::count_bits(votes & ((1u << lane) - 1u)), total = 0;
  for (int i = 0; i < kTokenWarps; ++i) {
    if (i < warp) before += counts[i];
    total += counts[i];
  }
  if (is_mine) found[before] = static_cast<int>(threadIdx.x);
  __syncthreads();  // the rows are there, and the readers of the counts are done
  return total;
}

// A block for each row: the first of its token adds up all of that token's.
template <class G, class D>
__global__ void add_token_rows(G* dwte, const D* dy, const int32_t* tokens, int64_t rows, int64_t cols) {
  GPU_SHARED(int, found, kTokenThreads);
  const int64_t own = blockIdx.x;
  const int32_t token = tokens[own];
  for (int64_t begin = 0; begin < rows; begin += kTokenThreads) {
    const int count = find_rows(found, tokens, token, begin, rows);
    if (count > 0 && begin + found[0] < own) return;
    for (int64_t i = threadIdx.x; i < cols && count > 0; i += kTokenThreads) {
      G sum = dwte[token * cols + i];
      for (int k = 0; k < count; ++k) sum += convert_to<G>(dy[(begin + found[k]) * cols + i]);
      dwte[token * cols + i] = sum;
    }
  }
}

template <class G, class D>
__global__ void add_position_rows(G* dwpe, const D* dy, int64_t windows, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    G sum = dwpe[i];
    for (int64_t w = 0; w < windows; ++w) sum += convert_to<G>(dy[w * n + i]);
    dwpe[i] = sum;
  }
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::embedding_fwd(Out y, In tokens, In wte, In wpe) {
  with_result_type(wte.dtype, y.dtype, [&](auto type, auto result_type) {
    using W = typename decltype(type)::type;
    using Y = typename decltype(result_type)::type;
    gpu::launch(embed<Y, W>, gpu::Grid(y.rows()), kElementThreads, 0, gpu::stream(), y.as<Y>(), tokens.as<int32_t>(),
                wte.as<W>(), wpe.as<W>(), tokens.cols(), y.cols());
  });
}

void cuda::embedding_bwd(Acc dwte, Acc dwpe, In dy, In tokens) {
  if (dwte && !dwte.add) fill(dwte, 0);
  if (dwpe && !dwpe.add) fill(dwpe, 0);
  with_float_type(dy.dtype, [&](auto type) {
    using D = typename decltype(type)::type;
    using G = Compute<D>;
    const int64_t rows = dy.rows(), cols = dy.cols(), window = tokens.cols();
    if (dwte) {
      gpu::launch(add_token_rows<G, D>, gpu::Grid(rows), kTokenThreads, 0, gpu::stream(), dwte.as<G>(), dy.as<D>(),
                  tokens.as<int32_t>(), rows, cols);
    }
    if (dwpe && window > 0) {
      const int64_t n = window * cols;
      gpu::launch(add_position_rows<G, D>, element_grid(n), kElementThreads, 0, gpu::stream(), dwpe.as<G>(), dy.as<D>(),
                  rows / window, n);
    }
  });
}

}  // namespace taper
