#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/core/random.h"

namespace taper {
namespace {

using Counter = std::array<uint32_t, 4>;

// Known answers published with Random123 (tests/kat_vectors, philox4x32 10).
TEST_CASE("random: Philox gives the published known answers") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, {ones, ones}) == Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a position read in order and at random is the same, and seek resumes") {
  Random a(42, RandomStream::batches);
  std::vector<uint32_t> values;
  for (int i = 0; i < 23; ++i) values.push_back(a.next_u32());
  for (size_t i = 0; i < values.size(); ++i) CHECK(a.u32_at(i) == values[i]);
  CHECK(a.position() == 23);
  Random b(42, RandomStream::batches);
  b.seek(7);
  CHECK(b.next_u32() == values[7]);
  b.seek(uint64_t{1} << 40);
  const uint32_t far = b.next_u32();
  CHECK(far == a.u32_at(uint64_t{1} << 40));
  CHECK(far != a.u32_at(0));
}

TEST_CASE("random: seeds, streams and substreams give other numbers") {
  std::set<uint64_t> firsts;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (const RandomStream stream : {RandomStream::initialisation, RandomStream::sampling}) {
      for (const uint32_t substream : {0u, 1u}) firsts.insert(Random(seed, stream, substream).next_u64());
    }
  }
  CHECK(firsts.size() == 16);
}

TEST_CASE("random: uniform numbers fill [0, 1) and bounded ones their range evenly") {
  Random random(1, RandomStream::test);
  double sum = 0, least = 1, greatest = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.next_uniform();
    sum += u;
    least = std::min(least, u);
    greatest = std::max(greatest, u);
  }
  CHECK(least >= 0);
  CHECK(greatest < 1);
  CHECK(std::fabs(sum / kDraws - 0.5) < 0.01);  // standard error 0.002
  CHECK(random.next_below(1) == 0);
  std::vector<int> counts(7);
  for (int i = 0; i < kDraws; ++i) ++counts[random.next_below(7)];
  for (const int count : counts) CHECK(std::abs(count - kDraws / 7) < 250);  // standard deviation 49
  const uint64_t half = (uint64_t{1} << 63) + 1;
  for (int i = 0; i < 100; ++i) CHECK(random.next_below(half) < half);
}

TEST_CASE("random: normal numbers have mean 0, variance 1, kurtosis 3, and are finite") {
  const Random random(3, RandomStream::initialisation);
  double sum = 0, square = 0, fourth = 0;
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal_at(static_cast<uint64_t>(i));
    REQUIRE(std::isfinite(x));
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  CHECK(std::fabs(sum / kDraws) < 0.025);
  CHECK(std::fabs(square / kDraws - 1) < 0.035);
  CHECK(std::fabs(fourth / kDraws - 3) < 0.25);
}

}  // namespace
}  // namespace taper
