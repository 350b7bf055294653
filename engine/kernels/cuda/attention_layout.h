// Where rows of heads lie in qkv, in y and in the rows' statistics, for all attention kernels.
#pragma once

#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {

struct AttentionLayout {
  int64_t batch, tokens, heads, kv_heads, size;

  AttentionLayout(In qkv, const AttentionOptions& o)
      : batch(qkv.shape[0]), tokens(qkv.shape[1]), heads(o.heads), kv_heads(o.kv_heads), size(o.head_size) {}

  TAPER_HD int64_t group() const { return heads / kv_heads; }  // queries' heads that share one of keys
  TAPER_HD int64_t blocks(int tile) const { return (tokens + tile - 1) / tile; }
  TAPER_HD int64_t qkv_width() const { return (heads + 2 * kv_heads) * size; }
  TAPER_HD int64_t y_width() const { return heads * size; }
  // The first element of token 0. `head` counts through q, then k, then v.
  TAPER_HD int64_t qkv_offset(int64_t b, int64_t head) const { return b * tokens * qkv_width() + head * size; }
  TAPER_HD int64_t key_head(int64_t kv_head) const { return heads + kv_head; }
  TAPER_HD int64_t value_head(int64_t kv_head) const { return heads + kv_heads + kv_head; }
  TAPER_HD int64_t y_offset(int64_t b, int64_t head) const { return b * tokens * y_width() + head * size; }
  TAPER_HD int64_t stat_offset(int64_t b, int64_t head) const { return (b * heads + head) * tokens; }
};

// Of the kernels for a forward or backward pass; which suits, attention.cu decides.
struct AttentionForward {
  void* y;
  void* lse;
  const void* qkv;
  AttentionLayout layout;
  double scale;
};

struct AttentionBackward {
  void* dqkv;
  bool is_dqkv_f32;  // beside bf16 activations
  bool add;
  const void* dy;
  const void* lse;
  const void* delta;  // [B, H, T]: the sum of dy y over each row
  const void* qkv;
  AttentionLayout layout;
  double scale;
};

// On CUDA cores, in f32 (f64 for f64): any type, any head size.
void attend_plain(const AttentionForward& a, Dtype dtype);
void attend_plain_backward(const AttentionBackward& a, Dtype dtype);

// On tensor cores: bf16, heads of at most 128 in multiples of 8, rows aligned to 16 bytes, scale > 0.
void attend_mma(const AttentionForward& a);
void attend_mma_backward(const AttentionBackward& a);

}  // namespace taper::cuda
