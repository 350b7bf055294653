// Reading pieces of memory one after the other, each divided among the threads, who meet after it. With the matrices of
// a token this is the chain that no decoder which reads its weights can beat.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/decoder.h"
#include "infer/huge_memory.h"

namespace taper {

class ReadChain {
 public:
  // Memory of its own, on the same kind of pages as packed weights. Error where there is not enough.
  explicit ReadChain(std::vector<int64_t> bytes_of_pieces);

  void read(int64_t times);
  int64_t bytes() const { return memory_.bytes(); }

 private:
  std::vector<int64_t> pieces_;
  HugeMemory memory_;
};

// Bytes of the matrices of a token, in order: those of each layer, then the unembedding.
std::vector<int64_t> matrix_bytes(const ModelConfig& config, WeightType weights);

}  // namespace taper
