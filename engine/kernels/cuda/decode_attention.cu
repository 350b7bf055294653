// Attention of a token over the cached keys and values, with the softmax summed as it goes. A block has the queries of
// one row that share a head of keys, or some of them; `lanes` threads hold a head between them, and the groups of so
// many threads take the positions in turn. Where heads are too few for the device, the positions are divided among
// several blocks besides, whose results the next product joins.
#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/decode_cuda.h"

namespace taper::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kLeastPositions = 32;  // of a part

// The sums of one query over the positions of a group, or over those of all groups.
template <int kPlaces>
struct Running {
  float greatest = -INFINITY;
  float sum = 0;
  float values[kPlaces] = {};

  template <class V>
  __device__ void add(float score, const V& value) {
    const float most = max(greatest, score), factor = math::exp(greatest - most), weight = math::exp(score - most);
    sum = sum * factor + weight;
    GPU_UNROLL
    for (int i = 0; i < kPlaces; ++i) values[i] = values[i] * factor + weight * value(i);
    greatest = most;
  }
};

template <class T, int kPacks, int kQueries>
__global__ void __launch_bounds__(kThreads) attend(DeviceAttention a, int lanes) {
  constexpr int kWidth = static_cast<int>(16 / sizeof(T)), kPlaces = kPacks * kWidth;
  using Loaded = gpu::Pack<T, kWidth>;
  GPU_SHARED(float, values, kThreads* kPlaces);
  GPU_SHARED(float, greatest, kThreads);
  GPU_SHARED(float, sums, kThreads);
  const DeviceCache& cache = a.cache;
  const int64_t size = cache.head_size, sharing = cache.heads / cache.kv_heads;
  const int64_t bundles = (sharing + kQueries - 1) / kQueries;
  const int64_t row = blockIdx.x / (cache.kv_heads * bundles), bundle = blockIdx.x % (cache.kv_heads * bundles);
  const int64_t kv_head = bundle / bundles, first_query = kv_head * sharing + bundle % bundles * kQueries;
  const int queries = static_cast<int>(min(int64_t{kQueries}, (kv_head + 1) * sharing - first_query));
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int groups = kThreads / lanes;

  const int64_t count = a.rows.positions[row] + int64_t{1}, parts = gridDim.y, part = blockIdx.y;
  const int64_t each = max(kLeastPositions, (count + parts - 1) / parts);
  const int64_t begin = min(count, part * each), end = min(count, begin + each);
  const int64_t head = (a.rows.sequences[row] * cache.kv_heads + kv_head) * cache.context * cache.stride;
  const T* const keys = static_cast<const T*>(cache.keys) + head;
  const T* const cached_values = static_cast<const T*>(cache.values) + head;
  const auto element = [&](int place) { return (place / kWidth * lanes + lane) * kWidth + place % kWidth; };

  float q[kQueries][kPlaces];
  GPU_UNROLL
  for (int n = 0; n < kQueries; ++n) {
    GPU_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      const bool is_there = n < queries && element(i) < size;
      q[n][i] = is_there ? a.q[(row * cache.heads + first_query + n) * size + element(i)] * a.scale : 0.0f;
    }
  }
  Running<kPlaces> running[kQueries];
  for (int64_t first = begin; first < end; first += groups) {
    const int64_t position = first + group;
    Loaded key[kPacks] = {}, value[kPacks] = {};
    GPU_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      if (position >= end || element(p * kWidth) >= cache.stride) continue;
      key[p] = gpu::load_pack<kWidth>(keys + position * cache.stride + element(p * kWidth));
      value[p] = gpu::load_pack<kWidth>(cached_values + position * cache.stride + element(p * kWidth));
    }
    GPU_UNROLL
    for (int n = 0; n < kQueries; ++n) {
      float score = 0;
      GPU_UNROLL
      for (int i = 0; i < kPlaces; ++i) score += q[n][i] * convert_to<float>(key[i / kWidth][i % kWidth]);
      for (int step = lanes / 2; step > 0; step /= 2) score += __shfl_xor_sync(gpu::kAllLanes, score, step);
      if (position < end) {
        running[n].add(score, [&](int i) { return convert_to<float>(value[i / kWidth][i % kWidth]); });
      }
    }
  }
  GPU_UNROLL
  for (int n = 0; n < kQueries; ++n) {
    if (n >= queries) break;
    if (n > 0) __syncthreads();  // the query before is written
    GPU_UNROLL
    for (int i = 0; i < kPlaces; ++i) values[group * lanes * kPlaces + element(i)] = running[n].values[i];
    if (lane == 0) {
      greatest[group] = running[n].greatest;
      sums[group] = running[n].sum;
    }
    __syncthreads();
    float most = -INFINITY, sum = 0;
    for (int g = 0; g < groups; ++g) most = max(most, greatest[g]);
    const auto weight = [&](int g) { return greatest[g] == -INFINITY ? 0.0f : math::exp(greatest[g] - most); };
    for (int g = 0; g < groups; ++g) sum += weight(g) * sums[g];
    const int64_t query = first_query + n, at = (row * cache.heads + query) * size;
    const int64_t part_rows = part * a.rows.count * cache.heads;
    for (int64_t e = threadIdx.x; e < size; e += kThreads) {
      float mixed = 0;
      for (int g = 0; g < groups; ++g) mixed += weight(g) * values[g * lanes * kPlaces + e];
      if (parts > 1) {
        a.parts.values[part_rows * size + at + e] = mixed;
      } else {
        a.y[at + e] = mixed / sum;
      }
    }
    if (parts > 1 && threadIdx.x == 0) {
      float* extremes = a.parts.extremes + (part_rows + row * cache.heads + query) * 2;
      extremes[0] = most;
      extremes[1] = sum;
    }
  }
}

template <class T, int kPacks, int kQueries>
void launch_attention(const DeviceAttention& a) {
  const int64_t packs = a.cache.stride * static_cast<int64_t>(sizeof(T)) / kDevicePiece;
  int lanes = 1;
  while (lanes < gpu::kWarp && lanes * kPacks < packs) lanes *= 2;
  const int64_t sharing = a.cache.heads / a.cache.kv_heads;
  const gpu::Grid grid(a.rows.count * a.cache.kv_heads * gpu::blocks_for(sharing, kQueries),
                       a.parts.count > 1 ? a.parts.count : 1);
  gpu::launch(attend<T, kPacks, kQueries>, grid, kThreads, 0, gpu::stream(), a, lanes);
}

template <class T>
void run_attention(const DeviceAttention& a) {
  const int64_t sharing = a.cache.heads / a.cache.kv_heads;
  if (a.cache.stride * static_cast<int64_t>(sizeof(T)) > gpu::kWarp * kDevicePiece) return launch_attention<T, 8, 1>(a);
  if (sharing == 1) return launch_attention<T, 1, 1>(a);
  if (sharing == 2) return launch_attention<T, 1, 2>(a);
  launch_attention<T, 1, 4>(a);
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::decode_attention(const DeviceAttention& a) {
  if (a.cache.dtype == Dtype::bf16) return cuda::run_attention<bf16>(a);
  cuda::run_attention<float>(a);
}

}  // namespace taper
