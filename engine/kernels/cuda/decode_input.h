// How the rows of a product's input come to shared memory, tile after tile: through a norm, a scale or nothing, or as
// the sum of attention's parts.
#pragma once

#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/decode_cuda.h"

namespace taper::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = kDecodeWarps * gpu::kWarp;
inline constexpr int kTileFloats = 4096;
// Weights of attention's parts that a block keeps: of a few heads at a time.
inline constexpr int kPartWeights = 256;

// What a row's norm needs besides its parameters.
struct RowStatistics {
  float mean = 0;
  float reciprocal = 1;  // of the root mean square or the standard deviation
};

// Every thread of the block calls it and receives the same.
__device__ inline RowStatistics row_statistics(const float* row, int64_t k, const DecodeNorm& norm) {
  RowStatistics result;
  const bool centres = norm.kind == NormKind::layer && norm.form != taper::NormForm::none;
  const bool divides = norm.form == taper::NormForm::norm || norm.form == taper::NormForm::both;
  if (centres) {
    float sum = 0;
    for (int64_t c = threadIdx.x; c < k; c += kDecodeThreads) sum += row[c];
    result.mean = gpu::block_sum(sum) / static_cast<float>(k);
  }
  if (divides) {
    float squares = 0;
    for (int64_t c = threadIdx.x; c < k; c += kDecodeThreads) {
      const float centred = row[c] - result.mean;
      squares += centred * centred;
    }
    result.reciprocal = 1.0f / sqrtf(gpu::block_sum(squares) / static_cast<float>(k) + norm.eps);
  }
  return result;
}

__device__ inline float normalised(float value, int64_t c, const DecodeNorm& norm, const RowStatistics& row) {
  if (norm.form == taper::NormForm::none) return value;
  const float centred = value - row.mean;
  float normed = 0, scaled = 0;
  if (norm.form != taper::NormForm::scale) {
    normed = centred * row.reciprocal * norm.gamma[c] + (norm.beta ? norm.beta[c] : 0.0f);
    if (norm.form == taper::NormForm::norm) return normed;
  }
  scaled = centred * norm.scale[c] + (norm.shift ? norm.shift[c] : 0.0f);
  return norm.form == taper::NormForm::scale ? scaled : norm.gate * normed + (1.0f - norm.gate) * scaled;
}

// What part `part` of head `head` counts for in row `row`: exp(its greatest - the greatest) / the sum over all.
__device__ inline float part_weight(const AttentionParts& parts, int64_t rows, int64_t row, int64_t head, int part) {
  const auto extremes = [&](int p) { return parts.extremes + ((p * rows + row) * parts.heads + head) * 2; };
  float greatest = extremes(0)[0];
  for (int p = 1; p < parts.count; ++p) greatest = max(greatest, extremes(p)[0]);
  float sum = 0;
  for (int p = 0; p < parts.count; ++p) sum += math::exp(extremes(p)[0] - greatest) * extremes(p)[1];
  return math::exp(extremes(part)[0] - greatest) / sum;
}

// Columns [begin, begin + count) of row `row` of attention's result, zero beyond k.
__device__ inline void stage_parts(float* tile, const DeviceInput& in, int64_t k, int64_t row, int64_t begin,
                                   int64_t count) {
  GPU_SHARED(float, weights, kPartWeights);
  const AttentionParts& parts = in.parts;
  const int64_t heads_at_once = kPartWeights / parts.count, width = parts.heads * parts.head_size;
  const int64_t last_head = (min(begin + count, k) - 1) / parts.head_size;
  for (int64_t first = begin / parts.head_size; first <= last_head; first += heads_at_once) {
    const int64_t heads = min(heads_at_once, last_head + 1 - first);
    __syncthreads();  // the weights before are used
    for (int64_t i = threadIdx.x; i < heads * parts.count; i += kDecodeThreads) {
      weights[i] = part_weight(parts, in.rows, row, first + i / parts.count, static_cast<int>(i % parts.count));
    }
    __syncthreads();
    const int64_t from = max(begin, first * parts.head_size),
                  to = min(begin + count, (first + heads) * parts.head_size);
    for (int64_t c = from + threadIdx.x; c < to; c += kDecodeThreads) {
      float value = 0;
      for (int p = 0; p < parts.count && c < k; ++p) {
        value +=
            weights[(c / parts.head_size - first) * parts.count + p] * parts.values[(p * in.rows + row) * width + c];
      }
      tile[c - begin] = value;
    }
  }
  for (int64_t c = max(begin, k) + threadIdx.x; c < begin + count; c += kDecodeThreads) tile[c - begin] = 0;
}

__device__ inline void stage_row(float* tile, const DeviceInput& in, int64_t k, int64_t row, int64_t begin,
                                 int64_t count, const RowStatistics& statistics) {
  const float* x = in.x + row * in.stride;
  for (int64_t c = begin + threadIdx.x; c < begin + count; c += kDecodeThreads) {
    tile[c - begin] = c < k ? normalised(x[c], c, in.norm, statistics) : 0.0f;
  }
}

}  // namespace taper::cuda
