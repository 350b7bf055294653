#include <cmath>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// F: the type of the master, the moments and the arithmetic.
template <class F, class Grad>
void adamw_range(F* p, F* m, F* v, bf16* copy, const Grad* grad, int64_t count, const AdamwOptions& o,
                 const double* u) {
  const F clip = static_cast<F>(u[kClipFactor]), keep = static_cast<F>(1 - u[kLearningRate] * o.weight_decay);
  const F beta1 = static_cast<F>(o.beta1), rest1 = static_cast<F>(1 - o.beta1);
  const F beta2 = static_cast<F>(o.beta2), rest2 = static_cast<F>(1 - o.beta2);
  const F rate = static_cast<F>(u[kLearningRate] / u[kCorrection1]);
  const F root = static_cast<F>(1 / std::sqrt(u[kCorrection2]));
  const F eps = static_cast<F>(o.eps);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const F g = convert_to<F>(grad[i]) * clip;
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    p[i] = p[i] * keep - rate * m[i] / (std::sqrt(v[i]) * root + eps);
  }
  if (!copy) return;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) copy[i] = convert_to<bf16>(p[i]);
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::plan_update(Out scalars, In learning_rate, In squares, In losses, double max_norm,
                                 AdamwOptions options) {
  const math::Update update{
      squares.as<double>(), squares.numel(), losses.as<double>(), losses ? losses.numel() : 0, max_norm,
      options.beta1,        options.beta2};
  update.plan(scalars.as<double>(), *learning_rate.as<double>());
}

void cpu::TAPER_ISA::adamw(Out master, Out m, Out v, Out copy, In grad, In scalars, AdamwOptions options) {
  const double* update = scalars.as<double>();
  if (update[kClipFactor] == 0) return;
  // Pieces that stay in the nearest cache until the copy has been written.
  constexpr int64_t kPiece = 1024;
  const auto run = [&](auto type, auto grad_type) {
    using F = typename decltype(type)::type;
    using Grad = typename decltype(grad_type)::type;
    parallel_for(master.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kPiece) {
        adamw_range(master.as<F>() + i, m.as<F>() + i, v.as<F>() + i, copy ? copy.as<bf16>() + i : nullptr,
                    grad.as<Grad>() + i, end - i < kPiece ? end - i : kPiece, options, update);
      }
    });
  };
  with_float_type(grad.dtype, [&](auto grad_type) {
    if (master.dtype == Dtype::f64) return run(Type<double>(), grad_type);
    run(Type<float>(), grad_type);
  });
}

}  // namespace taper
