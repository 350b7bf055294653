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

double read_bytes_per_s(int64_t bytes) {
  ReadChain memory({bytes});
  const int64_t times = std::max<int64_t>(1, kBeyondCaches / bytes);
  return static_cast<double>(memory.bytes() * times) / least_seconds_of([&] { memory.read(times); });
}

double flops_per_s(Dtype dtype) {
  constexpr int64_t kSize = 1024;
  const Tensor a = Tensor::full({kSize, kSize}, 0.01, dtype), b = Tensor::full({kSize, kSize}, 0.01, dtype);
  const Tensor c = Tensor::empty({kSize, kSize}, dtype);
  return 2.0 * kSize * kSize * kSize /
         least_seconds_of([&] { kernels::matmul(Accumulator(View(c), false), a, b, MatmulOptions{}); });
}

}  // namespace

MachineLimits measure_machine_limits(int64_t read_bytes) {
  return {read_bytes_per_s(read_bytes), flops_per_s(Dtype::f32), flops_per_s(Dtype::bf16)};
}

}  // namespace taper
