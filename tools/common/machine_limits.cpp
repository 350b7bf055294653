#include "tools/common/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/core/tensor.h"
#include "engine/kernels/cpu/read_stream.h"
#include "engine/kernels/kernels.h"

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
  constexpr int64_t kBytes = 256'000'000;
  const Tensor memory = Tensor::full({kBytes / 2}, 1.0, Dtype::bf16);
  std::vector<uint64_t> sums(static_cast<size_t>(thread_count()) * 16);
  const double seconds = least_seconds_of([&] {
    parallel_team([&](const Worker& worker) {
      int64_t begin, end;
      worker.part(kBytes, 64, begin, end);
      sums[static_cast<size_t>(worker.index) * 16] +=
          cpu::read_stream(static_cast<const char*>(memory.raw()) + begin, end - begin);
    });
  });
  return static_cast<double>(kBytes) / seconds;
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
