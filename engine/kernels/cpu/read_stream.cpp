#include "engine/kernels/cpu/read_stream.h"

#ifndef TAPER_ISA
#define TAPER_ISA base
#endif

namespace taper::cpu {

uint64_t TAPER_ISA::read_stream(const void* data, int64_t bytes) {
  const uint64_t* words = static_cast<const uint64_t*>(data);
  // Enough sums side by side to have many reads under way.
  constexpr int64_t kSums = 64;
  uint64_t sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= bytes / 8; i += kSums) {
#pragma omp simd
    for (int64_t j = 0; j < kSums; ++j) sums[j] += words[i + j];
  }
  for (; i < bytes / 8; ++i) sums[0] += words[i];
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace taper::cpu
