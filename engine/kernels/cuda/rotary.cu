#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

struct Heads {
  int64_t tokens, size;   // of a window; of a head
  int64_t turned, width;  // columns of q and k; of q, k and v
};

// A thread for each pair of q and k, and for each column of v.
template <class To, class From>
__global__ void rotate(To* y, const From* x, const Compute<From>* cos, const Compute<From>* sin, Heads heads,
                       Compute<From> direction, int64_t n, bool adds) {
  using C = Compute<From>;
  const int64_t half = heads.size / 2, pairs = heads.turned / 2, each = heads.width - pairs;
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const int64_t row = i / each, place = i % each;
    if (place >= pairs) {
      const int64_t at = row * heads.width + pairs + place;
      gpu::put(y[at], convert_to<C>(x[at]), adds);
      continue;
    }
    const int64_t in_head = place % half, at = row * heads.width + place / half * heads.size + in_head;
    const int64_t angle = row % heads.tokens * half + in_head;
    const C a = convert_to<C>(x[at]), b = convert_to<C>(x[at + half]), s = direction * sin[angle];
    gpu::put(y[at], a * cos[angle] - b * s, adds);
    gpu::put(y[at + half], b * cos[angle] + a * s, adds);
  }
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::rotary(Acc y, In x, In cos, In sin, AttentionOptions options, bool is_inverse) {
  Heads heads;
  heads.tokens = x.shape[1];
  heads.size = options.head_size;
  heads.turned = (options.heads + options.kv_heads) * options.head_size;
  heads.width = x.cols();
  with_float_type(y.dtype, [&](auto to) {
    with_float_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      using C = Compute<From>;
      const int64_t n = x.rows() * (heads.width - heads.turned / 2);
      gpu::launch(rotate<To, From>, element_grid(n), kElementThreads, 0, gpu::stream(), y.as<To>(), x.as<From>(),
                  cos.as<C>(), sin.as<C>(), heads, is_inverse ? C(-1) : C(1), n, y.add);
    });
  });
}

}  // namespace taper
