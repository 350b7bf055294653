// One pass of tokens through the network, as each thread of the team runs it. The order of a layer:
//
//   residual sum, norm or scale or nothing, q k v, rotary, cache, attention, product back     -> parts of the branch
//   residual sum, norm or scale or nothing, up, activation, down                              -> parts of the branch
//
// Where the threads are a power of two that divides the groups of heads and the slices of hidden channels, each takes
// its own from norm to part and they meet once after each line; the next residual sum adds the parts. Otherwise the
// rows of every matrix are divided, with a meeting after each product. Both give the same bits.
//
// With few rows every thread computes all residual sums and norms for itself, which is cheaper than to meet.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/parallel.h"
#include "infer/decode_engine.h"
#include "infer/decode_profile.h"
#include "infer/decode_weights.h"
#include "infer/kv_cache.h"

namespace taper {

// All memory a pass writes, for at most `rows` rows. Strides in elements; inputs of products are of input_dtype.
struct DecodeWorkspace {
  // Where a row's residual stream and its norm are kept.
  struct Stream {
    float* h = nullptr;      // [rows, channels]
    std::byte* x = nullptr;  // [rows, channels_k] input_dtype
  };
  struct Attention {
    float* scores = nullptr;
    std::byte* inputs = nullptr;
    float* mixed = nullptr;
  };

  DecodeWorkspace(const DecodeWeights& weights, int64_t rows, int64_t logits_rows, int threads);

  Stream shared;
  std::vector<Stream> own;  // of each thread, for up to kOwnRows rows
  std::vector<Attention> attention;
  int64_t scores_stride = 0;
  float* qkv = nullptr;            // [rows, groups * group_rows]
  std::byte* attended = nullptr;   // [rows, attention_k] input_dtype
  float* up = nullptr;             // [rows, hidden_rows]
  std::byte* activated = nullptr;  // [rows, hidden] input_dtype
  float* parts[2] = {};            // [kMaxSlices][rows, channels]: of the attention and of the MLP
  int64_t part_stride = 0;
  float* logits = nullptr;  // [logits_rows, vocabulary]

 private:
  HugeMemory memory_;
};
inline constexpr int64_t kOwnRows = 4;

class DecoderPass {
 public:
  // Logits of rows [first_logits_row, rows.size()), none where that is empty. profile: where this worker's time is to
  // be counted, or absent.
  DecoderPass(const DecodeWeights& weights, const KvCache& cache, DecodeWorkspace& workspace,
              std::span<const DecodeRow> rows, int64_t first_logits_row, const Worker& worker, DecodeProfile* profile);
  void run();

 private:
  void embed();
  // h += branch, which `source` made, if any; x = norm(h), for the rows from `first` on.
  void residual_norm(const DecodeNorm& norm, const PackedMatrix* source, int branch, int64_t first = 0);
  void attention(int64_t layer);
  void append(int64_t layer, int64_t kv_head);
  void attend(int64_t layer, int64_t kv_head, int64_t first_row, int64_t rows);
  void attend_tiles(int64_t layer);
  void mlp(const LayerWeights& layer);
  void unembed();

  // y[panels of w] = x w^T, scaled and with the bias, for all rows.
  PanelProduct product(float* y, int64_t y_stride, const std::byte* x, int64_t x_stride, const PackedMatrix& w,
                       int64_t first_panel, int64_t panels) const;
  // This worker's part of the product that writes a branch, and the number of parts.
  void write_branch(int branch, const std::byte* x, int64_t x_stride, const PackedMatrix& w, int slices);
  float* head(int64_t row, int64_t q_or_kv_head, int which) const;

  void meet() {
    worker_.barrier();
    lap(DecodeStage::wait);
  }
  void lap(DecodeStage stage) {
    if (profile_) profile_->lap(stage);
  }

  const DecodeWeights& weights_;
  const DecodeKernels& kernels_;
  const DecodeShape& shape_;
  const KvCache& cache_;
  DecodeWorkspace& ws_;
  const std::span<const DecodeRow> rows_;
  const int64_t row_count_;
  const int64_t first_logits_row_;
  const Worker& worker_;
  DecodeProfile* const profile_;
  const bool owns_branches_;  // threads take whole groups and slices
  const bool owns_rows_;      // every thread has all rows for itself
  const DecodeWorkspace::Stream stream_;
  const int64_t input_size_;  // bytes of an element of a product's input
  int part_count_ = 0;
};

}  // namespace taper
