#include "engine/core/parallel.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

template <class To, class C>
inline void put(To* y, int64_t i, C value, bool adds) {
  y[i] = convert_to<To>(adds ? convert_to<C>(y[i]) + value : value);
}

// One token: its heads of q and k, then v as it is.
template <class To, class From, class C>
void rotate_row(To* y, const From* x, const C* cos, const C* sin, const AttentionOptions& options, C direction,
                bool adds) {
  const int64_t size = options.head_size, half = size / 2;
  const int64_t turned = (options.heads + options.kv_heads) * size;
  for (int64_t head = 0; head < turned; head += size) {
    To* y_head = y + head;
    const From* x_head = x + head;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const C a = convert_to<C>(x_head[i]), b = convert_to<C>(x_head[i + half]);
      const C s = direction * sin[i];
      put(y_head, i, a * cos[i] - b * s, adds);
      put(y_head, i + half, b * cos[i] + a * s, adds);
    }
  }
  const int64_t width = turned + options.kv_heads * size;
#pragma omp simd
  for (int64_t i = turned; i < width; ++i) put(y, i, convert_to<C>(x[i]), adds);
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA

namespace taper {

void cpu::TAPER_ISA::rotary(Acc y, In x, In cos, In sin, AttentionOptions options, bool is_inverse) {
  const int64_t tokens = x.shape[1], width = x.cols(), half = options.head_size / 2;
  constexpr int64_t kGrain = 16384;
  with_float_type(y.dtype, [&](auto to) {
    with_float_type(x.dtype, [&](auto from) {
      using To = typename decltype(to)::type;
      using From = typename decltype(from)::type;
      using C = Compute<From>;
      const C direction = is_inverse ? C(-1) : C(1);
      parallel_for(x.rows(), 1 + kGrain / (width + 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t angle = row % tokens * half;
          rotate_row(y.as<To>() + row * width, x.as<From>() + row * width, cos.as<C>() + angle, sin.as<C>() + angle,
                     options, direction, y.add);
        }
      });
    });
  });
}

}  // namespace taper
