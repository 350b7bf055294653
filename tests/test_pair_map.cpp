#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "data/bpe/pair_map.h"

using namespace taper;

TEST_CASE("pair map: keys order as pairs do and give the ids back") {
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  CHECK(pair_key(1, most) < pair_key(2, 0));
  CHECK(left_of(pair_key(most, 7)) == most);
  CHECK(right_of(pair_key(7, most)) == most);
}

TEST_CASE("pair map: keeps what it was given while it grows") {
  PairMap<std::int64_t> map;
  CHECK(map.find(pair_key(0, 0)) == nullptr);
  constexpr std::int32_t kSide = 200;
  for (std::int32_t left = 0; left < kSide; ++left) {
    for (std::int32_t right = 0; right < kSide; ++right) map[pair_key(left, right)] += left * kSide + right;
  }
  CHECK(map.size() == kSide * kSide);
  for (std::int32_t left = 0; left < kSide; ++left) {
    for (std::int32_t right = 0; right < kSide; ++right) {
      const std::int64_t* value = map.find(pair_key(left, right));
      REQUIRE(value != nullptr);
      REQUIRE(*value == left * kSide + right);
    }
  }
  CHECK(map.find(pair_key(kSide, 0)) == nullptr);
}
