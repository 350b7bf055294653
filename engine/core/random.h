// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A value depends on (seed, stream, index) alone, never on threads or order, so any run repeats from its seed and any
// position can be resumed. Streams keep independent uses of one seed apart.
#pragma once

#include <array>
#include <cstdint>

namespace taper {

// constexpr so that device code may call it as well.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Names of the streams in use: a new use takes a new number.
enum class RandomStream : uint32_t { initialisation, batches, sampling, stories, test, data_split };

class Random {
 public:
  Random(uint64_t seed, RandomStream stream, uint32_t substream = 0)
      : seed_(seed), stream_(static_cast<uint32_t>(stream)), substream_(substream) {}

  // Sequential use; position() and seek() save and restore it.
  uint32_t next_u32();
  uint64_t next_u64();
  double next_uniform();                // [0, 1), 53 bits
  uint64_t next_below(uint64_t bound);  // [0, bound), without modulo bias; bound >= 1
  double next_normal();

  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

  // Random access: does not move the position.
  uint32_t u32_at(uint64_t index) const;
  double normal_at(uint64_t index) const;  // standard normal, Box-Muller on the pair (2 * index, 2 * index + 1)

 private:
  uint64_t seed_;
  uint32_t stream_;
  uint32_t substream_;
  uint64_t position_ = 0;  // in 32-bit words
};

}  // namespace taper
