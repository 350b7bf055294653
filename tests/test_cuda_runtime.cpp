// Work on the device that is recorded once and launched often, on the CUDA device of the tests.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/gradcheck.h"
#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "engine/kernels/kernels.h"
#include "tests/support/cuda_runs.h"
#include "tests/support/error_of.h"
#include "tests/support/shared.h"

namespace taper::test {
namespace {

Tensor on_device(int64_t rows, int64_t cols, uint64_t seed) {
  return random_normal({rows, cols}, Dtype::f32, seed).to(Device::cuda);
}

// Kernels, a product, a copy, a fill, and memory taken and let go of.
struct Work {
  Tensor x = on_device(9, 16, 1), w = on_device(16, 16, 2), y = on_device(9, 16, 3), sum = on_device(1, 16, 4);

  void run() const {
    const Tensor product = Tensor::empty({9, 16}, Dtype::f32, Device::cuda, "a product");
    kernels::matmul(Accumulator(View(product), false), x, w, MatmulOptions{});
    kernels::add_to(y, product, 0.5);
    const Tensor copy = y.clone();
    kernels::unary_fwd(product, copy, Unary::tanh);
    cuda_runtime().fill_bytes(sum.raw(), 0, sum.bytes());
    kernels::sum_to(Accumulator(View(sum), true), product);
  }
  std::vector<double> results() const {
    std::vector<double> all = y.to_doubles();
    for (const double value : sum.to_doubles()) all.push_back(value);
    return all;
  }
};

TEST_CASE("cuda graph: a launch gives the bits of separate launches, and reads what is in memory then") {
  SKIP_WITHOUT_CUDA();
  const Work separate, recorded;
  separate.run();
  recorded.run();
  const std::vector<double> before = recorded.results();
  const cuda::Graph graph([&] { recorded.run(); });
  CHECK(recorded.results() == before);  // recording does nothing
  CHECK(graph.size() >= 6);
  for (uint64_t launch = 0; launch < 3; ++launch) {
    const Tensor x = on_device(9, 16, 100 + launch);
    separate.x.copy_from(x);
    recorded.x.copy_from(x);
    separate.run();
    graph.launch();
    CHECK(recorded.results() == separate.results());
  }
  CHECK(recorded.results() != before);
}

TEST_CASE("cuda graph: what it took is its own until it is gone") {
  SKIP_WITHOUT_CUDA();
  const Work separate, recorded;
  recorded.run();
  separate.run();
  Tensor left;
  auto graph = std::make_unique<cuda::Graph>([&] {
    recorded.run();
    left = recorded.y.clone();
  });
  // As large as what the work let go of: none of it may lie there.
  const Tensor others[] = {on_device(9, 16, 5), on_device(9, 16, 6), on_device(9, 16, 7), on_device(9, 16, 8)};
  const std::vector<double> values = others[0].to_doubles();
  graph->launch();
  graph->launch();
  separate.run();
  separate.run();
  CHECK(recorded.results() == separate.results());
  CHECK(left.to_doubles() == recorded.y.to_doubles());
  CHECK(others[0].to_doubles() == values);
  for (uint64_t i = 1; i < 4; ++i) CHECK(others[i].to_doubles() == on_device(9, 16, 5 + i).to_doubles());
  release_cached_memory(Device::cuda);
  CHECK(memory_use(Device::cuda).cached_bytes > 0);
  graph.reset();
  release_cached_memory(Device::cuda);
  CHECK(memory_use(Device::cuda).cached_bytes == 0);
  CHECK(left.to_doubles() == recorded.y.to_doubles());
}

TEST_CASE("cuda graph: what cannot be repeated is refused, and the device works on") {
  SKIP_WITHOUT_CUDA();
  const Work work;
  work.run();
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto recording = [](const std::function<void()>& body) {
    return error_of([&] { const cuda::Graph graph(body); });
  };
  has(recording([&] { work.y.to_doubles(); }), "a copy from the device while work is recorded");
  has(recording([&] {
        work.y.copy_from(Tensor::zeros({9, 16}, Dtype::f32));
      }),
      "a copy to the device while work is recorded");
  has(recording([&] { cuda_runtime().synchronise(); }), "the host waits for the device while work is recorded");
  has(recording([&] { cuda_runtime().make_event()->record(); }), "an event while work is recorded");
  has(recording([&] { const cuda::Graph inner([&] { work.run(); }); }), "a pool is open already");
  has(recording([&] { fail("of the work's own"); }), "of the work's own");
  release_cached_memory(Device::cuda);
  has(recording([&] { work.run(); }), "of new memory while work is recorded; want the work done once before");
  Tensor temporary = on_device(3, 3, 1);
  has(recording([&] { temporary = {}; }), "lets go of memory that was there before it");
  const Work other;
  work.run();
  other.run();
  other.run();
  CHECK(work.results() == other.results());
}

}  // namespace
}  // namespace taper::test
