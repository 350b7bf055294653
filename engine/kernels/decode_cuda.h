// A pass of tokens through the network on the CUDA device: a few launches a layer, driven by infer/cuda_engine.cpp.
//
//   decode_qkv         norm or scale or nothing, q k v, bias, rotary; keys and values go to the cache
//   decode_attention   each row's queries over the cache
//   decode_product     residual sum; or norm, up, activation; or norm, unembedding
//   decode_choose      the next token, by the rules of infer/sampler.h
//
// One token is a chain of products of matrices with a vector, and the time is that of reading the matrices: they are
// read once, in pieces of 16 bytes, while all else stays in shared memory and registers. Which token a row is, and
// where it stands, is read from device memory: a step recorded once can be launched for every token.
//
// All pointers are to device memory, activations are f32, strides count elements. Like kernels.h's functions these are
// weak: absent from a build without CUDA.
#pragma once

#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/kernels/decode.h"

namespace taper {

// Bytes that a thread loads at once: rows of matrices and of the cache are filled up to them with zeros.
inline constexpr int64_t kDevicePiece = 16;
constexpr int64_t device_stride(int64_t columns, Dtype dtype) {
  return round_up(columns, kDevicePiece / size_of(dtype));
}

struct DeviceMatrix {  // [rows, k], f32 or bf16
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t stride = 0;           // device_stride(k)
  const float* bias = nullptr;  // [rows] or absent
};

// The tokens of a call, i32 [count] each.
struct DeviceRows {
  int64_t count = 0;
  const int32_t* tokens = nullptr;
  const int32_t* sequences = nullptr;
  const int32_t* positions = nullptr;
};

// Keys and values of one layer: [sequences, kv_heads, context, stride] each, of the matrices' dtype.
struct DeviceCache {
  void* keys = nullptr;
  void* values = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t context = 0;
  int64_t stride = 0;  // device_stride(head_size)
};

// What attention leaves where the positions are divided among several blocks: for each row, head and part the greatest
// score, the sum of exp(score - greatest), and the values summed with these weights.
struct AttentionParts {
  int count = 0;              // 0: attention wrote its result; at most kMaxAttentionParts
  float* values = nullptr;    // [count, rows, heads * head_size]
  float* extremes = nullptr;  // [count, rows, heads, 2]: greatest score, sum
  int64_t heads = 0, head_size = 0;
};
inline constexpr int kMaxAttentionParts = 8;

// The rows that a product reads: x through a norm, or attention's parts joined.
struct DeviceInput {
  const float* x = nullptr;  // [rows, k]
  int64_t stride = 0;
  int64_t rows = 0;
  DecodeNorm norm;  // of device pointers
  AttentionParts parts;
};

struct DeviceProduct {  // y = act(x w^T + bias), or y += x w^T + bias
  float* y = nullptr;
  int64_t y_stride = 0;
  DeviceInput in;
  DeviceMatrix w;
  bool adds = false;
  Activation act = Activation::none;
  bool is_gated = false;  // w's upper half are gates: y = silu(gate) up, half as wide
};

struct DeviceQkv {     // w [(heads + 2 kv_heads) head_size, k]
  float* q = nullptr;  // [rows, heads * head_size]
  DeviceInput in;
  DeviceMatrix w;
  DeviceRows rows;
  DeviceCache cache;
  const float* cos = nullptr;  // [context, head_size / 2]; absent: no rotary positions
  const float* sin = nullptr;
};

struct DeviceAttention {
  float* y = nullptr;  // [rows, heads * head_size]; unused where parts.count > 1
  AttentionParts parts;
  const float* q = nullptr;
  DeviceRows rows;
  DeviceCache cache;
  float scale = 1;
};
// Beyond it the sums of a head do not fit a block's registers.
inline constexpr int64_t kMaxDeviceHeadSize = 1024;

// SamplerOptions (infer/sampler.h) as the device reads them.
struct DeviceSampler {
  double temperature = 0, top_p = 1, min_p = 0;
  float repetition_penalty = 1;
  int64_t top_k = 0;
  uint64_t seed = 0;
};

// The next token for `count` rows of logits, those of sequences first_sequence and following. Everything else is of all
// sequences.
struct DeviceChoice {
  int32_t* tokens = nullptr;     // [sequences]; -1 - i where the logit of token i is not finite
  int32_t* positions = nullptr;  // [sequences], one is added; or absent
  const float* logits = nullptr;
  int64_t stride = 0, count = 0, vocab_size = 0;
  int64_t first_sequence = 0;
  const DeviceSampler* sampler = nullptr;
  int32_t* draws = nullptr;       // [sequences]: random numbers drawn so far
  const int32_t* seen = nullptr;  // [sequences, vocab_size]: 1 for tokens of the text so far
  uint64_t* weights = nullptr;    // workspace [sequences, vocab_size]
};

namespace cuda {

// h[r] = wte[token] + wpe[position]; wpe may be absent. Marks the tokens as seen [sequences, V].
[[gnu::weak]] void decode_embed(float* h, int64_t h_stride, int32_t* seen, const DeviceRows& rows,
                                const DeviceMatrix& wte, const DeviceMatrix& wpe);
[[gnu::weak]] void decode_qkv(const DeviceQkv& a);
[[gnu::weak]] void decode_attention(const DeviceAttention& a);
[[gnu::weak]] void decode_product(const DeviceProduct& a);
[[gnu::weak]] void decode_choose(const DeviceChoice& a);

}  // namespace cuda
}  // namespace taper
