#include "engine/kernels/cuda/elementwise.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

// Of type F: that of the master, the moments and the arithmetic.
template <class F>
struct Factors {
  F clip, keep, beta1, rest1, beta2, rest2, rate, root, eps;

  __device__ Factors(const AdamwOptions& o, const double* update)
      : clip(static_cast<F>(update[kClipFactor])),
        keep(static_cast<F>(1 - update[kLearningRate] * o.weight_decay)),
        beta1(static_cast<F>(o.beta1)),
        rest1(static_cast<F>(1 - o.beta1)),
        beta2(static_cast<F>(o.beta2)),
        rest2(static_cast<F>(1 - o.beta2)),
        rate(static_cast<F>(update[kLearningRate] / update[kCorrection1])),
        root(static_cast<F>(1 / sqrt(update[kCorrection2]))),
        eps(static_cast<F>(o.eps)) {}
};

template <class F, class Grad>
__global__ void update(F* master, F* m, F* v, bf16* copy, const Grad* grad, const double* scalars, AdamwOptions options,
                       int64_t n) {
  if (scalars[kClipFactor] == 0) return;
  const Factors<F> f(options, scalars);
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

__global__ void plan(double* scalars, const double* learning_rate, math::Update update) {
  update.plan(scalars, *learning_rate);
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::plan_update(Out scalars, In learning_rate, In squares, In losses, double max_norm, AdamwOptions options) {
  const math::Update update{
      squares.as<double>(), squares.numel(), losses.as<double>(), losses ? losses.numel() : 0, max_norm,
      options.beta1,        options.beta2};
  gpu::launch(plan, gpu::Grid(1), 1, 0, gpu::stream(), scalars.as<double>(), learning_rate.as<double>(), update);
}

void cuda::adamw(Out master, Out m, Out v, Out copy, In grad, In scalars, AdamwOptions options) {
  const auto run = [&](auto type, auto grad_type) {
    using F = typename decltype(type)::type;
    using Grad = typename decltype(grad_type)::type;
    const int64_t n = master.numel();
    gpu::launch(update<F, Grad>, element_grid(n), kElementThreads, 0, gpu::stream(), master.as<F>(), m.as<F>(),
                v.as<F>(), copy.as<bf16>(), grad.as<Grad>(), scalars.as<double>(), options, n);
  };
  with_float_type(grad.dtype, [&](auto grad_type) {
    if (master.dtype == Dtype::f64) return run(Type<double>(), grad_type);
    run(Type<float>(), grad_type);
  });
}

}  // namespace taper
