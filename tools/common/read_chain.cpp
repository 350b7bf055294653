#include "tools/common/read_chain.h"

#include <atomic>
#include <cstring>
#include <numeric>

#include "engine/core/parallel.h"
#include "engine/kernels/cpu/read_stream.h"
#include "infer/decode_profile.h"

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
  std::vector<int64_t> bytes;
  const auto add = [&](DecodeStage stage) { bytes.push_back(matrix_elements(stage, config) * size_of(weights)); };
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const DecodeStage stage : {DecodeStage::qkv, DecodeStage::output, DecodeStage::up, DecodeStage::down})
      add(stage);
  }
  add(DecodeStage::unembed);
  return bytes;
}

}  // namespace taper
