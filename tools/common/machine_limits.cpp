#include "tools/common/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"
#include "tools/common/read_chain.h"

namespace taper {
namespace {

// Of the fastest call: a limit is what happens undisturbed.
double least_seconds_of(const std::function<void()>& call) {
  constexpr int kRepeats = 5;
  call();
  double least = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

double read_bytes_per_s() {
  ReadChain memory({256'000'000});
  return static_cast<double>(memory.bytes()) / least_seconds_of([&] { memory.read(1); });
}

double flops_per_s(Dtype dtype) {
  constexpr int64_t kSize = 1024;
  const Tensor a = Tensor::full({kSize, kSize}, 0.01, dtype), b = Tensor::full({kSize, kSize}, 0.01, dtype);
  const Tensor c = Tensor::empty({kSize, kSize}, dtype);
  return 2.0 * kSize * kSize * kSize /
         least_seconds_of([&] { kernels::matmul(Accumulator(View(c), false), a, b, MatmulOptions{}); });
}

}  // namespace

MachineLimits measure_machine_limits() {
  return {read_bytes_per_s(), flops_per_s(Dtype::f32), flops_per_s(Dtype::bf16)};
}

}  // namespace taper
