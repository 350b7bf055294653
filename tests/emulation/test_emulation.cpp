// The emulated device itself: what it computes, and that it sees what is wrong with a kernel.
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/kernels/cuda/gpu.h"
#include "tests/emulation/access_checker.h"
#include "tests/emulation/schedule.h"
#include "tests/support/error_of.h"
#include "tests/support/shared.h"

namespace taper::test {
namespace {

using emulation::Schedule;

Tensor on_device(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}).to(Device::cuda);
}
Tensor unset(int64_t n) { return Tensor::empty({n}, Dtype::f32, Device::cuda); }
float* floats(const Tensor& t) { return static_cast<float*>(t.raw()); }

template <class... P, class... A>
std::string error_of_kernel(void (*kernel)(P...), unsigned threads, A... args) {
  return error_of([&] { gpu::launch(kernel, gpu::Grid(2), threads, 0, gpu::stream(), args...); });
}

__global__ void number(float* y) {
  const int64_t block = blockIdx.x + int64_t{gridDim.x} * (blockIdx.y + int64_t{gridDim.y} * blockIdx.z);
  const int64_t thread = threadIdx.x + int64_t{blockDim.x} * (threadIdx.y + int64_t{blockDim.y} * threadIdx.z);
  const int64_t at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  y[at] = static_cast<float>(at);
}

TEST_CASE("emulated device: every thread of every block runs once, in all three dimensions") {
  const Tensor y = unset(3 * 2 * 2 * 5 * 3 * 2);
  gpu::launch(number, gpu::Grid(3, 2, 2), dim3(5, 3, 2), 0, gpu::stream(), floats(y));
  const std::vector<double> values = y.to_doubles();
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == static_cast<double>(i));
}

__global__ void reverse_and_sum(float* y, float* sums, const float* x) {
  GPU_SHARED(float, tile, 64);
  float* copy = gpu::dyn_shared<float>();
  tile[threadIdx.x] = x[threadIdx.x];
  copy[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x] - copy[threadIdx.x];
  const float sum = gpu::block_sum(x[threadIdx.x]);
  const float greatest = gpu::block_max(x[threadIdx.x], -1e30f);
  sums[threadIdx.x] = sum + 1000 * greatest;
}

TEST_CASE("emulated device: shared memory, barriers and reductions, the same in every order") {
  std::vector<float> x(64);
  for (size_t i = 0; i < 64; ++i) x[i] = std::sin(static_cast<float>(i));
  double sum = 0;
  float greatest = -1;
  for (const float value : x) {
    sum += value;
    greatest = std::max(greatest, value);
  }
  std::set<std::vector<double>> results;
  for (const Schedule& schedule : {Schedule{}, Schedule{Schedule::Order::descending, 0},
                                   Schedule{Schedule::Order::run_ahead, 1}, Schedule{Schedule::Order::run_ahead, 2}}) {
    emulation::set_schedule(schedule);
    const Tensor y = unset(64), sums = unset(64);
    gpu::launch(reverse_and_sum, gpu::Grid(1), 64, 64 * sizeof(float), gpu::stream(), floats(y), floats(sums),
                floats(on_device(x)));
    const std::vector<double> got = y.to_doubles(), all = sums.to_doubles();
    for (size_t i = 0; i < 64; ++i) {
      CHECK(got[i] == static_cast<double>(x[63 - i] - x[i]));
      CHECK(all[i] == doctest::Approx(sum + 1000.0 * greatest));
    }
    results.insert(all);
  }
  emulation::set_schedule({});
  CHECK(results.size() == 1);
}

__global__ void shuffles(float* y) {
  const auto lane = static_cast<float>(threadIdx.x);
  float* own = y + threadIdx.x * 5;
  own[0] = __shfl_sync(gpu::kAllLanes, lane, 7);
  own[1] = __shfl_xor_sync(gpu::kAllLanes, lane, 5);
  own[2] = __shfl_down_sync(gpu::kAllLanes, lane, 3);
  own[3] = __shfl_up_sync(gpu::kAllLanes, lane, 2, 8);
  own[4] = static_cast<float>(__ballot_sync(gpu::kAllLanes, threadIdx.x % 16 == 1));
}

TEST_CASE("emulated device: shuffles and votes") {
  const Tensor y = unset(32 * 5);
  gpu::launch(shuffles, gpu::Grid(1), 32, 0, gpu::stream(), floats(y));
  const std::vector<double> got = y.to_doubles();
  for (int i = 0; i < 32; ++i) {
    const double* own = got.data() + i * 5;
    CHECK(own[0] == 7);
    CHECK(own[1] == (i ^ 5));
    CHECK(own[2] == (i + 3 < 32 ? i + 3 : i));
    CHECK(own[3] == (i % 8 >= 2 ? i - 2 : i));
    CHECK(own[4] == (1u << 1) + (1u << 17));
  }
}

// c [16, 8] = a [16, 16] b [16, 8], fragments read from shared memory: b lies as [k, n] and is turned while it is read.
__global__ void multiply_tile(float* c, const bf16* a, const bf16* b) {
  GPU_SHARED(bf16, a_tile, 16 * 16);
  GPU_SHARED(bf16, b_tile, 32 * 8);
  const auto lane = static_cast<int>(threadIdx.x);
  gpu::copy_to_shared_async(a_tile + lane * 8, a + lane * 8, true);
  gpu::copy_to_shared_async(b_tile + lane * 8, b + lane * 8, lane < 16);
  gpu::commit_copies();
  gpu::wait_for_copies<0>();
  __syncthreads();
  uint32_t a_parts[4], b_parts[4];
  gpu::load_matrices(a_parts, a_tile + lane % 16 * 16 + lane / 16 * 8);
  gpu::load_matrices<true>(b_parts, b_tile + lane * 8);
  const uint32_t b_pair[2] = {b_parts[0], b_parts[1]};
  float sums[4] = {};
  gpu::mma_16x8x16(sums, a_parts, b_pair);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

TEST_CASE("emulated device: matrix units and asynchronous copies") {
  std::vector<bf16> a(256), b(128);
  for (size_t i = 0; i < a.size(); ++i) a[i] = bf16(static_cast<float>(i % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = bf16(static_cast<float>(i % 7) - 3);
  const Tensor c = unset(128), at = Tensor::from(a, {256}).to(Device::cuda),
               bt = Tensor::from(b, {128}).to(Device::cuda);
  gpu::launch(multiply_tile, gpu::Grid(1), 32, 0, gpu::stream(), floats(c), static_cast<bf16*>(at.raw()),
              static_cast<bf16*>(bt.raw()));
  const std::vector<double> got = c.to_doubles();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 8; ++col) {
      double want = 0;
      for (size_t k = 0; k < 16; ++k) want += double(float(a[row * 16 + k])) * double(float(b[k * 8 + col]));
      CHECK(got[row * 8 + col] == want);
    }
  }
}

__global__ void read_before_copy(float* y, const float* x) {
  GPU_SHARED(float, tile, 4);
  gpu::copy_to_shared_async(tile, x, true);
  gpu::commit_copies();
  y[0] = tile[0];
  gpu::wait_for_copies<0>();
  y[1] = tile[0];
}

__global__ void read_shared_unset(float* y) {
  GPU_SHARED(float, tile, 32);
  y[threadIdx.x] = tile[threadIdx.x];
}

// Accesses are watched in ascending order alone.
class Unwatched {
 public:
  Unwatched() { emulation::set_schedule({Schedule::Order::descending, 0}); }
  ~Unwatched() { emulation::set_schedule({}); }
};

TEST_CASE("emulated device: what was not written, or not yet, is NaN") {
  const Unwatched unwatched;
  const Tensor y = unset(32);
  gpu::launch(read_before_copy, gpu::Grid(1), 1, 0, gpu::stream(), floats(y), floats(on_device({5, 6, 7, 8})));
  CHECK(std::isnan(y.to_doubles()[0]));
  CHECK(y.to_doubles()[1] == 5);
  CHECK(std::isnan(y.to_doubles()[2]));
  gpu::launch(read_shared_unset, gpu::Grid(1), 32, 0, gpu::stream(), floats(y));
  for (const double value : y.to_doubles()) CHECK(std::isnan(value));
}

__global__ void some_leave_early(float*) {
  if (threadIdx.x == 5) return;
  __syncthreads();
}
__global__ void two_barriers(float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
    y[0] = 1;
  }
}
__global__ void shuffle_of_half(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(gpu::kAllLanes, 1.0f, 1);
  __syncthreads();
}
__global__ void two_shuffles(float* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __shfl_xor_sync(gpu::kAllLanes, 1.0f, 1);
  } else {
    y[threadIdx.x] = __shfl_xor_sync(gpu::kAllLanes, 1.0f, 2);
  }
}
__global__ void mask_without_self(float* y) { y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1); }
__global__ void write_beyond_shared(float* y, int at) {
  GPU_SHARED(float, tile, 16);
  float* const place = tile + at;  // an index would be the compiler's sanitizer's to refuse
  *place = y[0];
}
__global__ void unaligned(float* y) { gpu::load_pack<4>(y + 1); }

TEST_CASE("emulated device: what is wrong with a kernel is told with its place") {
  const Tensor y = unset(64);
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
    CHECK(text.find("test_emulation.cpp:") != std::string::npos);
  };
  has(error_of_kernel(some_leave_early, 64u, floats(y)), "a barrier that 1 of 64 threads never reach");
  has(error_of_kernel(two_barriers, 64u, floats(y)), "threads of one block wait at this barrier and others at");
  has(error_of_kernel(shuffle_of_half, 32u, floats(y)), "the threads of a block wait for each other");
  has(error_of_kernel(two_shuffles, 32u, floats(y)), "__shfl_xor_sync meets __shfl_xor_sync of other lanes at");
  has(error_of_kernel(mask_without_self, 32u, floats(y)), "leaves out its own lane");
  {
    const Unwatched unwatched;
    has(error_of_kernel(write_beyond_shared, 1u, floats(on_device({1})), 16),
        "tile of 64 bytes was written beyond its end");
  }
  CHECK(error_of_kernel(write_beyond_shared, 1u, floats(on_device({1})), 15) == "nothing was thrown");
  CHECK(error_of_kernel(unaligned, 1u, floats(y)).find("not aligned") != std::string::npos);
  std::vector<float> host(64);
  has(error_of_kernel(number, 1u, host.data()), "argument 0 of a launch points to no memory of the device");
  has(error_of_kernel(number, 1025u, floats(y)), "threads are out of range");
  has(error_of([&] { gpu::launch(number, gpu::Grid(1), 1, 1 << 20, gpu::stream(), floats(y)); }),
      "too much shared memory");
  has(error_of([&] { gpu::launch(number, gpu::Grid(1, 70000), 1, 0, gpu::stream(), floats(y)); }),
      "a launch is too large");
  // And after all that it still works.
  gpu::launch(number, gpu::Grid(2), 32, 0, gpu::stream(), floats(y));
  CHECK(y.to_doubles()[63] == 63);
}

__global__ void forgotten_barrier(float* y, const float* x) {
  GPU_SHARED(float, tile, 64);
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = gpu::warp_sum(tile[(threadIdx.x + 32) % 64]);
}

TEST_CASE("emulated device: a barrier that was forgotten shows in some order") {
  int wrong = 0;
  for (const Schedule& schedule : {Schedule{Schedule::Order::descending, 0}, Schedule{Schedule::Order::run_ahead, 1},
                                   Schedule{Schedule::Order::run_ahead, 2}}) {
    emulation::set_schedule(schedule);
    const Tensor y = unset(64);
    gpu::launch(forgotten_barrier, gpu::Grid(1), 64, 0, gpu::stream(), floats(y),
                floats(on_device(std::vector<float>(64, 1.0f))));
    const std::vector<double> got = y.to_doubles();
    for (const double value : got) wrong += value == 32 ? 0 : 1;
  }
  emulation::set_schedule({});
  CHECK(wrong > 0);
}

__global__ void add_without_atomic(float* y) { y[0] += 1; }
__global__ void add_with_atomic(float* y) { atomicAdd(y, 1.0f); }
__global__ void write_what_others_read(float* y, const float* x) {
  GPU_SHARED(float, tile, 64);
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float value = tile[63 - threadIdx.x];
  tile[threadIdx.x] = value;
  y[threadIdx.x] = value;
}
__global__ void warp_order(float* y, const float* x, bool waits) {
  GPU_SHARED(float, tile, 32);
  tile[threadIdx.x] = x[threadIdx.x];
  if (waits) __syncwarp();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}
__global__ void read_unset(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }

TEST_CASE("emulated device: accesses are watched") {
  if (!emulation::can_watch()) SKIP_TEST("accesses are watched by g++ without sanitizers only");
  const auto launch = [](auto kernel, unsigned blocks, unsigned threads, auto... args) {
    return error_of([&] { gpu::launch(kernel, gpu::Grid(blocks), threads, 0, gpu::stream(), args...); });
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
    CHECK(text.find("test_emulation.cpp:") != std::string::npos);
  };
  const Tensor x = on_device(std::vector<float>(64, 1.0f)), y = on_device(std::vector<float>(64, 0.0f));
  has(launch(add_without_atomic, 2u, 1u, floats(y)), "a race");
  has(launch(add_without_atomic, 1u, 2u, floats(y)), "a race");
  CHECK(launch(add_without_atomic, 1u, 1u, floats(y)) == "nothing was thrown");
  CHECK(launch(add_with_atomic, 3u, 32u, floats(y)) == "nothing was thrown");
  has(launch(forgotten_barrier, 1u, 64u, floats(y), floats(x)), "reads what was never written");
  has(launch(write_what_others_read, 1u, 64u, floats(y), floats(x)), "a race");
  has(launch(warp_order, 1u, 32u, floats(y), floats(x), false), "never written");
  CHECK(launch(warp_order, 1u, 32u, floats(y), floats(x), true) == "nothing was thrown");
  release_cached_memory(Device::cuda);
  const Tensor fresh = Tensor::empty({int64_t{1} << 20}, Dtype::f32, Device::cuda, "memory of no earlier test");
  has(launch(read_unset, 1u, 32u, floats(y), floats(fresh)), "never written");
  has(launch(write_beyond_shared, 1u, 1u, floats(x), 16), "outside of every array");
}

}  // namespace
}  // namespace taper::test
