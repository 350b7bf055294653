#include "tools/common/read_chain.h"

#include <atomic>
#include <cstring>
#include <numeric>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/read_stream.h"

namespace taper {

ReadChain::ReadChain(std::vector<int64_t> bytes_of_pieces)
    : pieces_(std::move(bytes_of_pieces)),
      memory_(std::accumulate(pieces_.begin(), pieces_.end(), int64_t{0}), "memory to read") {
  // Until it is written, all of it is one and the same page of zeros.
  std::memset(memory_.data(), 1, static_cast<size_t>(memory_.bytes()));
}

void ReadChain::read(int64_t times) {
  std::atomic<uint64_t> total{0};  // used, so that the compiler leaves the reading in
  parallel_team([&](const Worker& worker) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < times; ++i) {
      const std::byte* piece = memory_.data();
      for (const int64_t bytes : pieces_) {
        int64_t begin, end;
        worker.part(bytes, kCacheLine, begin, end);
        sum += cpu::read_stream(piece + begin, end - begin);
        piece += bytes;
        worker.barrier();
      }
    }
    total += sum;
  });
}

std::vector<int64_t> matrix_bytes(const ModelConfig& config, WeightType weights) {
  const int64_t inner = config.heads * config.head_size, kv = config.kv_heads * config.head_size;
  const int64_t element = size_of(weights);
  std::vector<int64_t> bytes;
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const int64_t count :
         {config.width * (inner + 2 * kv), inner * config.width,
          config.width * config.mlp_hidden * (config.is_gated_mlp ? 2 : 1), config.mlp_hidden * config.width})
      bytes.push_back(count * element);
  }
  bytes.push_back(config.vocab_size * config.width * element);
  return bytes;
}

}  // namespace taper
