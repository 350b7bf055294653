// Both ends of a token's step: its embedding, and the choice of the next one. A block chooses for one sequence, by the
// rules of infer/sampler.h. What they sort for is found by bisection instead: each filter keeps the tokens of a
// shortest prefix of the order "most probable first, equals by id", so it is a threshold in that order, found bit by
// bit from sums over the tokens above it. Probabilities are whole numbers in these sums, which then do not depend on
// their order; the greatest is 2^46 for a vocabulary of 50,257, so thresholds agree with sums in double to about 1e-12.
#include <algorithm>

#include "engine/core/random.h"
#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/decode_cuda.h"

namespace taper::cuda {
namespace {

constexpr int kMostThreads = 1024;
using Count = unsigned long long;

struct Embedding {
  float* h;
  int64_t h_stride;
  int32_t* seen;
  DeviceRows rows;
  DeviceMatrix wte, wpe;
};

__device__ inline float element(const DeviceMatrix& m, int64_t row, int64_t c) {
  const int64_t at = row * m.stride + c;
  return m.dtype == Dtype::bf16 ? convert_to<float>(static_cast<const bf16*>(m.data)[at])
                                : static_cast<const float*>(m.data)[at];
}

__global__ void embed(Embedding a) {
  const int64_t row = blockIdx.y, token = a.rows.tokens[row], first = gpu::global_thread();
  if (first == 0) atomicMax(a.seen + a.rows.sequences[row] * a.wte.rows + token, 1);
  for (int64_t c = first; c < a.wte.k; c += gpu::thread_total()) {
    a.h[row * a.h_stride + c] =
        element(a.wte, token, c) + (a.wpe.data ? element(a.wpe, a.rows.positions[row], c) : 0.0f);
  }
}

// The tokens of one sequence in their order.
struct Tokens {
  const float* logits;
  const int32_t* seen;
  uint64_t* weights;
  int64_t count;
  float penalty;
  int id_bits;  // that a token's number takes

  // After the repetition penalty.
  __device__ float logit(int64_t i) const {
    const float raw = logits[i];
    if (penalty == 1.0f || seen[i] == 0) return raw;
    return raw > 0 ? raw / penalty : raw * penalty;
  }
  // Greater for what comes first. Its upper bits compare as the logits do, -0 as 0.
  __device__ Count order(int64_t i) const {
    const uint32_t bits = std::bit_cast<uint32_t>(logit(i) + 0.0f);
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return Count{rising} << id_bits | static_cast<Count>(count - 1 - i);
  }
  __device__ int64_t id(Count order) const {
    return count - 1 - static_cast<int64_t>(order & ((Count{1} << id_bits) - 1));
  }
};

template <class Measure>
__device__ Count sum_above(const Tokens& tokens, Count threshold, const Measure& measure) {
  Count sum = 0;
  for (int64_t i = threadIdx.x; i < tokens.count; i += blockDim.x) {
    if (tokens.order(i) >= threshold) sum += measure(i);
  }
  return gpu::block_sum(sum);
}

// The last token, as its order, of the shortest prefix whose measures add up to `goal`, at most the sum of all.
template <class Measure>
__device__ Count last_of_prefix(const Tokens& tokens, Count goal, const Measure& measure) {
  Count threshold = 0;
  for (int bit = 31 + tokens.id_bits; bit >= 0; --bit) {
    const Count higher = threshold | Count{1} << bit;
    if (sum_above(tokens, higher, measure) >= goal) threshold = higher;
  }
  return threshold;
}

// The first logit that is not finite, before or after the penalty; -1 if all are.
__device__ int64_t find_damaged(const Tokens& tokens) {
  const auto is_finite = [](float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) < 0x7f800000u; };
  int64_t distance = 0;
  for (int64_t i = threadIdx.x; i < tokens.count; i += blockDim.x) {
    if (!is_finite(tokens.logits[i]) || !is_finite(tokens.logit(i))) distance = max(distance, tokens.count - i);
  }
  distance = gpu::block_max(distance, int64_t{0});
  return distance == 0 ? -1 : tokens.count - distance;
}

// floor(u total) for a u uniform in [0, 1) with 53 bits: the number infer/sampler.h draws at this place.
__device__ Count draw_below(Count total, uint64_t seed, uint32_t sequence, uint32_t number) {
  const uint64_t word = uint64_t{2} * number, block = word / 4;
  const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                             static_cast<uint32_t>(RandomStream::sampling), sequence},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[word % 4]} << 32 | words[word % 4 + 1]) >> 11 << 11;
  return static_cast<Count>(static_cast<unsigned __int128>(bits) * total >> 64);
}

__device__ int64_t sample(const Tokens& tokens, Count best, const DeviceSampler& options, uint32_t sequence,
                          uint32_t number) {
  // infer/sampler.cpp has the same bound.
  constexpr double kNegligible = -46, kRounding = 1e-12;
  const double unit = static_cast<double>(Count{1} << (62 - tokens.id_bits));
  const double top = tokens.logit(tokens.id(best));
  for (int64_t i = threadIdx.x; i < tokens.count; i += blockDim.x) {
    const double below = (tokens.logit(i) - top) / options.temperature;
    tokens.weights[i] = below > kNegligible ? static_cast<Count>(math::exp(below) * unit + 0.5) : 0;
  }
  const auto weight = [&](int64_t i) { return static_cast<Count>(tokens.weights[i]); };
  Count floor = 0;
  if (options.top_k > 0 && options.top_k < tokens.count) {
    floor = last_of_prefix(tokens, static_cast<Count>(options.top_k), [](int64_t) { return Count{1}; });
  }
  if (options.top_p < 1) {
    const double mass = (options.top_p - kRounding) * static_cast<double>(sum_above(tokens, floor, weight));
    floor = max(floor, last_of_prefix(tokens, mass > 1 ? static_cast<Count>(mass) : 1, weight));
  }
  const auto least = static_cast<Count>(options.min_p * unit);
  const auto kept = [&](int64_t i) { return weight(i) >= least ? weight(i) : Count{0}; };
  const Count total = sum_above(tokens, floor, kept);
  return tokens.id(last_of_prefix(tokens, draw_below(total, options.seed, sequence, number) + 1, kept));
}

__global__ void __launch_bounds__(kMostThreads) choose(DeviceChoice a, int id_bits) {
  const int64_t sequence = a.first_sequence + blockIdx.x;
  const DeviceSampler options = *a.sampler;
  const Tokens tokens{a.logits + blockIdx.x * a.stride,    a.seen + sequence * a.vocab_size,
                      a.weights + sequence * a.vocab_size, a.vocab_size,
                      options.repetition_penalty,          id_bits};
  const int64_t damaged = find_damaged(tokens);
  Count best = 0;
  for (int64_t i = threadIdx.x; i < tokens.count; i += blockDim.x) best = max(best, tokens.order(i));
  best = gpu::block_max(best, Count{0});
  const int32_t number = a.draws[sequence];
  int64_t token = damaged >= 0 ? -1 - damaged : tokens.id(best);
  const bool draws = damaged < 0 && options.temperature > 0;
  if (draws) token = sample(tokens, best, options, static_cast<uint32_t>(sequence), static_cast<uint32_t>(number));
  if (threadIdx.x != 0) return;
  a.tokens[sequence] = static_cast<int32_t>(token);
  if (draws) a.draws[sequence] = number + 1;
  if (a.positions) ++a.positions[sequence];
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::decode_embed(float* h, int64_t h_stride, int32_t* seen, const DeviceRows& rows, const DeviceMatrix& wte,
                        const DeviceMatrix& wpe) {
  constexpr int kEmbedThreads = 128;
  gpu::launch(embed, gpu::Grid(gpu::blocks_for(wte.k, kEmbedThreads), rows.count), kEmbedThreads, 0, gpu::stream(),
              Embedding{h, h_stride, seen, rows, wte, wpe});
}

void cuda::decode_choose(const DeviceChoice& a) {
  int id_bits = 1;
  while ((int64_t{1} << id_bits) < a.vocab_size) ++id_bits;
  const auto threads = static_cast<unsigned>(std::min<int64_t>(kMostThreads, round_up(a.vocab_size, gpu::kWarp)));
  gpu::launch(choose, gpu::Grid(a.count), threads, 0, gpu::stream(), a, id_bits);
}

}  // namespace taper
