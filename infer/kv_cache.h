// Keys and values of the tokens so far, for each layer, sequence and head of keys, packed as the products read them
// (engine/kernels/decode.h): keys [positions, D], values [D, positions]. Two flat arrays, written by
// DecoderPass::append (infer/decoder_pass.h).
#pragma once

#include <cstdint>

#include "engine/kernels/decode.h"
#include "infer/huge_memory.h"
#include "model/config.h"

namespace taper {

class KvCache {
 public:
  // Elements are f32 or bf16. Error where there is not enough memory.
  KvCache(const ModelConfig& config, int64_t sequences, Dtype dtype);

  std::byte* keys(int64_t layer, int64_t sequence, int64_t head) const;
  std::byte* values(int64_t layer, int64_t sequence, int64_t head) const;
  int64_t value_panel_stride() const { return value_panel_stride_; }  // in elements
  int64_t bytes() const { return memory_.bytes(); }
  int64_t bytes_per_position() const;  // read for each earlier token

 private:
  int64_t heads_, layers_, sequences_, head_size_, element_;
  int64_t key_bytes_, value_bytes_, value_panel_stride_;  // of one head
  HugeMemory memory_;
};

}  // namespace taper
