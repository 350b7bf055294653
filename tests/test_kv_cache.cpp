#include <doctest/doctest.h>

#include <set>

#include "engine/core/error.h"
#include "infer/kv_cache.h"

using namespace taper;

namespace {

ModelConfig small() {
  ModelConfig config;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 5;
  config.context = 7;
  return config;
}

}  // namespace

TEST_CASE("kv cache: every layer, sequence and head has a place of its own") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const KvCache cache(small(), 2, dtype);
    std::set<const std::byte*> places;
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (int64_t sequence = 0; sequence < 2; ++sequence) {
        for (int64_t head = 0; head < 2; ++head) {
          places.insert(cache.keys(layer, sequence, head));
          places.insert(cache.values(layer, sequence, head));
        }
      }
    }
    CHECK(places.size() == 3 * 2 * 2 * 2);
    // The last place ends inside the memory: one panel of values, as head_size is below 16.
    const auto* end = cache.values(2, 1, 1) + cache.value_panel_stride() * size_of(dtype);
    CHECK(end - cache.keys(0, 0, 0) <= cache.bytes());
  }
}

TEST_CASE("kv cache: bf16 takes half the memory, and a position is counted without padding") {
  const KvCache f32(small(), 1, Dtype::f32), bf16(small(), 1, Dtype::bf16);
  CHECK(f32.bytes_per_position() == 2 * 3 * 2 * 5 * 4);
  CHECK(bf16.bytes_per_position() * 2 == f32.bytes_per_position());
}

TEST_CASE("kv cache: more than there can be is refused before anything is allocated") {
  ModelConfig config = small();
  config.context = int64_t{1} << 40;
  config.head_size = int64_t{1} << 20;
  CHECK_THROWS_AS(KvCache(config, int64_t{1} << 20, Dtype::f32), Error);
}
