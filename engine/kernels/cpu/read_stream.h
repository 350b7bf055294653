// Reading memory and nothing else: what a benchmark holds against kernels that are bound by it.
#pragma once

#include <cstdint>

#include "engine/core/cpu_features.h"

namespace taper::cpu {

// The sum of all 64-bit words of `bytes` bytes; what is left over is not read.
namespace base {
uint64_t read_stream(const void* data, int64_t bytes);
}
#if defined(__x86_64__)
namespace avx2 {
uint64_t read_stream(const void* data, int64_t bytes);
}
namespace avx512 {
uint64_t read_stream(const void* data, int64_t bytes);
}
#endif

inline uint64_t read_stream(const void* data, int64_t bytes) {
#if defined(__x86_64__)
  if (cpu_isa() == Isa::avx512) return avx512::read_stream(data, bytes);
  if (cpu_isa() == Isa::avx2) return avx2::read_stream(data, bytes);
#endif
  return base::read_stream(data, bytes);
}

}  // namespace taper::cpu
