#include <initializer_list>

#include "engine/kernels/cuda/attention_layout.h"

namespace taper::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowThreads = 8;  // lanes that share a row
constexpr int64_t kMostBlocks = 8192;

// delta [B, H, T] = the sum of dy y over each row of a head; rows lie as [B, T, H, D].
template <class T>
__global__ void __launch_bounds__(kThreads) sum_dy_y(Compute<T>* delta, const T* dy, const T* y, AttentionLayout l) {
  using C = Compute<T>;
  const int64_t rows = l.batch * l.tokens * l.heads, step = gpu::thread_total() / kRowThreads;
  const int lane = static_cast<int>(threadIdx.x) % kRowThreads;
  // Lanes of a warp leave together: the rows' sums are of whole warps.
  for (int64_t first = gpu::global_thread() / gpu::kWarp * (gpu::kWarp / kRowThreads); first < rows; first += step) {
    const int64_t row = first + static_cast<int>(threadIdx.x) % gpu::kWarp / kRowThreads;
    C sum = 0;
    if (row < rows) {
      for (int64_t i = lane; i < l.size; i += kRowThreads) {
        sum += convert_to<C>(dy[row * l.size + i]) * convert_to<C>(y[row * l.size + i]);
      }
    }
    sum = gpu::warp_sum<kRowThreads>(sum);
    if (lane != 0 || row >= rows) continue;
    const int64_t head = row % l.heads, token = row / l.heads % l.tokens, b = row / l.heads / l.tokens;
    delta[l.stat_offset(b, head) + token] = sum;
  }
}

bool suits_mma(const AttentionOptions& options, std::initializer_list<ConstView> views) {
  for (const ConstView& view : views) {
    if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) return false;
  }
  return views.begin()->dtype == Dtype::bf16 && options.head_size <= 128 && options.head_size % 8 == 0 &&
         options.scale > 0;
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::attention_fwd(Out y, Out lse, In qkv, AttentionOptions options) {
  const AttentionForward a{y.data, lse.data, qkv.data, AttentionLayout(qkv, options), options.scale};
  if (suits_mma(options, {qkv, y})) return attend_mma(a);
  attend_plain(a, qkv.dtype);
}

void cuda::attention_bwd(Acc dqkv, In dy, In y, In lse, In qkv, AttentionOptions options) {
  const AttentionLayout layout(qkv, options);
  with_float_type(qkv.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    const int64_t rows = layout.batch * layout.tokens * layout.heads;
    const gpu::Scratch<C> delta(rows);
    gpu::launch(sum_dy_y<T>, gpu::Grid(gpu::blocks_for(rows * kRowThreads, kThreads, kMostBlocks)), kThreads, 0,
                gpu::stream(), delta.data(), dy.as<T>(), y.as<T>(), layout);
    const bool is_dqkv_f32 = std::is_same_v<T, bf16> && dqkv.dtype == Dtype::f32;
    const AttentionBackward b{dqkv.data,    is_dqkv_f32, dqkv.add, dy.data,      lse.data,
                              delta.data(), qkv.data,    layout,   options.scale};
    if (suits_mma(options, {qkv, dy, dqkv})) return attend_mma_backward(b);
    attend_plain_backward(b, qkv.dtype);
  });
}

}  // namespace taper
