#include "engine/core/random.h"

#include <cmath>

namespace taper {

uint32_t Random::u32_at(uint64_t index) const {
  const uint64_t block = index / 4;
  const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream_, substream_},
                            {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  return words[index % 4];
}

uint32_t Random::next_u32() { return u32_at(position_++); }

uint64_t Random::next_u64() {
  const uint64_t high = next_u32();
  return high << 32 | next_u32();
}

double Random::next_uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

uint64_t Random::next_below(uint64_t bound) {
  // Values in the last, incomplete copy of [0, bound) would make small results likelier: draw again.
  const uint64_t limit = UINT64_MAX - (UINT64_MAX % bound + 1) % bound;
  uint64_t value = next_u64();
  while (value > limit) value = next_u64();
  return value % bound;
}

namespace {

double box_muller(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((a + 1.0) * 0x1p-32));
  return radius * std::cos(2.0 * 3.14159265358979323846 * b * 0x1p-32);
}

}  // namespace

double Random::normal_at(uint64_t index) const { return box_muller(u32_at(2 * index), u32_at(2 * index + 1)); }

double Random::next_normal() {
  const uint32_t a = next_u32();
  return box_muller(a, next_u32());
}

}  // namespace taper
