#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace taper {
namespace {

TEST_CASE("allocator: blocks are aligned, counted, and reused") {
  const MemoryUse before = memory_use();
  void* first = allocate(1000, "a test");
  CHECK(reinterpret_cast<uintptr_t>(first) % 64 == 0);
  CHECK(memory_use().live_bytes >= before.live_bytes + 1000);
  CHECK(memory_use().live_bytes <= before.live_bytes + 1125 + 64);
  release(first);
  CHECK(memory_use().live_bytes == before.live_bytes);
  void* again = allocate(1000, "a test");
  CHECK(again == first);
  release(again);
  void* nothing = allocate(0, "an empty tensor");
  CHECK(nothing != nullptr);
  release(nothing);
  release(nullptr);
}

TEST_CASE("allocator: the peak is the most ever handed out at once") {
  reset_peak_memory();
  const int64_t before = memory_use().live_bytes;
  {
    const Tensor a = Tensor::empty({1 << 20}, Dtype::f32);
    const Tensor b = Tensor::empty({1 << 20}, Dtype::f32);
  }
  const Tensor c = Tensor::empty({16}, Dtype::f32);
  CHECK(memory_use().peak_bytes - before == 2 * (4 << 20));
  reset_peak_memory();
  CHECK(memory_use().peak_bytes == memory_use().live_bytes);
}

TEST_CASE("allocator: cached memory can be given back") {
  { const Tensor a = Tensor::empty({1 << 20}, Dtype::f32); }
  CHECK(memory_use().cached_bytes >= 4 << 20);
  release_cached_memory();
  CHECK(memory_use().cached_bytes == 0);
}

TEST_CASE("allocator: what cannot fit is refused with its name, its size and what is in use") {
  const int64_t pebibyte = int64_t{1} << 50;
  CHECK_THROWS_WITH_AS(allocate(pebibyte, "wte"), doctest::Contains("out of memory: wte wants 1073741824 MB"), Error);
  CHECK_THROWS_WITH_AS(Tensor::empty({int64_t{1} << 30, int64_t{1} << 20}, Dtype::f32, Device::cpu, "the logits"),
                       doctest::Contains("the logits"), Error);
  CHECK_THROWS_AS(Tensor::empty({int64_t{1} << 30, int64_t{1} << 31}, Dtype::f64), Error);
}

TEST_CASE("allocator: guarded memory shows what was not written and what was written beyond") {
  set_memory_guard(true);
  const int64_t before = damaged_guards();
  {
    const Tensor a = Tensor::empty({3}, Dtype::f32);
    const Tensor b = Tensor::empty({3}, Dtype::bf16);
    for (const double value : a.to_doubles()) CHECK(std::isnan(value));
    for (const double value : b.to_doubles()) CHECK(std::isnan(value));
    std::memset(a.raw(), 0, 12);
    CHECK(damaged_guards() == before);
    static_cast<char*>(a.raw())[12] = 0;
    CHECK(damaged_guards() == before + 1);
  }
  CHECK(damaged_guards() == before + 1);  // released, and not forgotten
  set_memory_guard(false);
}

}  // namespace
}  // namespace taper
