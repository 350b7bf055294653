#include <cmath>

#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

// Of type F: that of the master, the moments and the arithmetic.
template <class F>
struct Factors {
  F clip, keep, beta1, rest1, beta2, rest2, rate, root, eps;

  explicit Factors(const AdamwOptions& o)
      : clip(static_cast<F>(o.clip_factor)),
        keep(static_cast<F>(1 - o.lr * o.weight_decay)),
        beta1(static_cast<F>(o.beta1)),
        rest1(static_cast<F>(1 - o.beta1)),
        beta2(static_cast<F>(o.beta2)),
        rest2(static_cast<F>(1 - o.beta2)),
        rate(static_cast<F>(o.lr / o.correction1)),
        root(static_cast<F>(1 / std::sqrt(o.correction2))),
        eps(static_cast<F>(o.eps)) {}
};

template <class F, class Grad>
__global__ void update(F* master, F* m, F* v, bf16* copy, const Grad* grad, Factors<F> f, int64_t n) {
  for (int64_t i = gpu::global_thread(); i < n; i += gpu::thread_total()) {
    const F g = convert_to<F>(grad[i]) * f.clip;
    const F first = f.beta1 * m[i] + f.rest1 * g;
    const F second = f.beta2 * v[i] + f.rest2 * g * g;
    const F p = master[i] * f.keep - f.rate * first / (sqrt(second) * f.root + f.eps);
    m[i] = first;
    v[i] = second;
    master[i] = p;
    if (copy) copy[i] = convert_to<bf16>(p);
  }
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::adamw(Out master, Out m, Out v, Out copy, In grad, AdamwOptions options) {
  const auto run = [&](auto type, auto grad_type) {
    using F = typename decltype(type)::type;
    using Grad = typename decltype(grad_type)::type;
    const int64_t n = master.numel();
    gpu::launch(update<F, Grad>, element_grid(n), kElementThreads, 0, gpu::stream(), master.as<F>(), m.as<F>(),
                v.as<F>(), copy.as<bf16>(), grad.as<Grad>(), Factors<F>(options), n);
  };
  with_float_type(grad.dtype, [&](auto grad_type) {
    if (master.dtype == Dtype::f64) return run(Type<double>(), grad_type);
    run(Type<float>(), grad_type);
  });
}

}  // namespace taper
