// Products of a matrix with one row or a few. A unit is two rows of the matrix: those that make one result (gate and
// up), that turn together (a pair of a rotary head), or just neighbours. It belongs to one warp, or where units are few
// to several warps of a block, each of which reads a part of the columns.
#include "engine/kernels/cuda/decode_input.h"
#include "engine/kernels/cuda/gpu.h"

namespace taper::cuda {
namespace {

struct Unit {
  int64_t first, second;  // rows of the matrix; second < 0: there is none
};

// What becomes of a unit's two sums in one row of the call.
struct WriteRows {
  float* y;
  int64_t stride, rows;
  const float* bias;
  Activation act;
  bool adds;

  TAPER_HD int64_t units() const { return (rows + 1) / 2; }
  __device__ Unit unit(int64_t u) const { return {2 * u, 2 * u + 1 < rows ? 2 * u + 1 : -1}; }
  __device__ void store(int64_t row, const Unit& unit, float first, float second) const {
    put(y[row * stride + unit.first], unit.first, first);
    if (unit.second >= 0) put(y[row * stride + unit.second], unit.second, second);
  }

 private:
  __device__ void put(float& target, int64_t i, float value) const {
    if (bias) value += bias[i];
    if (act == Activation::gelu_tanh) value = math::GeluTanh::value(value);
    if (act == Activation::gelu_erf) value = math::GeluErf::value(value);
    if (act == Activation::relu) value = math::Relu::value(value);
    target = adds ? target + value : value;
  }
};

struct WriteGated {
  float* y;
  int64_t stride, channels;
  const float* bias;

  TAPER_HD int64_t units() const { return channels; }
  __device__ Unit unit(int64_t u) const { return {u, channels + u}; }
  __device__ void store(int64_t row, const Unit& unit, float gate, float up) const {
    if (bias) {
      gate += bias[unit.first];
      up += bias[unit.second];
    }
    y[row * stride + unit.first] = math::Silu::value(gate) * up;
  }
};

// q to its rows, k and v to the cache; the heads of q and k turned where there are rotary positions.
struct WriteQkv {
  float* q;
  const float* bias;
  const float* cos;
  const float* sin;
  DeviceRows rows;
  DeviceCache cache;

  TAPER_HD int64_t half() const { return (cache.head_size + 1) / 2; }
  TAPER_HD int64_t units() const { return (cache.heads + 2 * cache.kv_heads) * half(); }
  __device__ Unit unit(int64_t u) const {
    const int64_t head = u / half(), i = u % half();
    return {head * cache.head_size + i, i + half() < cache.head_size ? head * cache.head_size + i + half() : -1};
  }
  __device__ void store(int64_t row, const Unit& unit, float first, float second) const {
    const int64_t head = unit.first / cache.head_size, i = unit.first % cache.head_size;
    if (bias) {
      first += bias[unit.first];
      if (unit.second >= 0) second += bias[unit.second];
    }
    const int64_t position = rows.positions[row];
    if (cos && head < cache.heads + cache.kv_heads) {
      const float c = cos[position * half() + i], s = sin[position * half() + i], before = first;
      first = before * c - second * s;
      second = before * s + second * c;
    }
    if (head < cache.heads) {
      put(q + (row * cache.heads + head) * cache.head_size, i, unit, first, second);
      return;
    }
    const bool is_key = head < cache.heads + cache.kv_heads;
    const int64_t kv_head = head - cache.heads - (is_key ? 0 : cache.kv_heads);
    const int64_t at = ((rows.sequences[row] * cache.kv_heads + kv_head) * cache.context + position) * cache.stride;
    void* target = is_key ? cache.keys : cache.values;
    if (cache.dtype == Dtype::bf16) {
      put(static_cast<bf16*>(target) + at, i, unit, first, second);
    } else {
      put(static_cast<float*>(target) + at, i, unit, first, second);
    }
  }

 private:
  template <class T>
  __device__ void put(T* head, int64_t i, const Unit& unit, float first, float second) const {
    head[i] = convert_to<T>(first);
    if (unit.second >= 0) head[i + half()] = convert_to<T>(second);
  }
};

// What one lane reads of a unit: every step-th piece of both rows, each loaded while the one before is multiplied.
template <class W>
class Weights {
 public:
  static constexpr int kWidth = static_cast<int>(16 / sizeof(W));

  __device__ Weights(const W* first, const W* second, int64_t stride, int part, int parts)
      : first_(first),
        second_(second),
        stride_(stride),
        begin_(int64_t{kWidth} * (part * gpu::kWarp + threadIdx.x % gpu::kWarp)),
        step_(int64_t{kWidth} * gpu::kWarp * parts) {
    load(begin_);
  }

  // Columns [first, first + count) are in the tile, of kStride columns for each row. Tiles come in order, and all but
  // the last are whole steps.
  template <int kRows, int kStride>
  __device__ __forceinline__ void multiply(float (&sums)[2][kRows], const float* tile, int64_t first, int64_t count) {
    static_assert(kStride % (kWidth * gpu::kWarp * kDecodeWarps) == 0);
    for (int64_t c = begin_; c < count; c += step_) {
      const Pack a = a_, b = b_;
      load(first + c + step_);
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto x = gpu::load_pack<kWidth>(tile + r * kStride + c);
        GPU_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          sums[0][r] += convert_to<float>(a[j]) * x[j];
          sums[1][r] += convert_to<float>(b[j]) * x[j];
        }
      }
    }
  }

 private:
  using Pack = gpu::Pack<W, kWidth>;

  __device__ __forceinline__ void load(int64_t column) {
    if (column >= stride_) return;
    a_ = gpu::load_pack<kWidth>(first_ + column);
    b_ = gpu::load_pack<kWidth>(second_ + column);
  }

  const W* first_;
  const W* second_;
  int64_t stride_, begin_, step_;
  Pack a_ = {}, b_ = {};
};

template <class W, int kRows, class Output>
__global__ void __launch_bounds__(kDecodeThreads)
    product(Output out, DeviceInput in, const W* w, int64_t stride, int64_t k, int parts) {
  constexpr int kTile = kTileFloats / kRows;
  GPU_SHARED(float, tile, kTileFloats);
  GPU_SHARED(float, of_warps, kDecodeWarps * 2 * kRows);
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarp, lane = static_cast<int>(threadIdx.x) % gpu::kWarp;
  const int64_t number = int64_t{blockIdx.x} * (kDecodeWarps / parts) + warp / parts;
  const bool has_unit = number < out.units();
  const Unit unit = has_unit ? out.unit(number) : Unit{0, -1};
  const W* const first = w + unit.first * stride;
  // On their way while x is made ready.
  Weights<W> weights(first, unit.second < 0 ? first : w + unit.second * stride, has_unit ? stride : 0, warp % parts,
                     parts);
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int rows = static_cast<int>(min(int64_t{kRows}, in.rows - first_row));

  RowStatistics statistics[kRows];
  if (in.parts.count == 0) {
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r < rows) statistics[r] = row_statistics(in.x + (first_row + r) * in.stride, k, in.norm);
    }
  }
  float sums[2][kRows] = {};
  for (int64_t begin = 0; begin < stride; begin += kTile) {
    const int64_t columns = min(int64_t{kTile}, stride - begin);
    if (begin > 0) __syncthreads();  // the tile before is used
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) {
        for (int64_t c = threadIdx.x; c < columns; c += kDecodeThreads) tile[r * kTile + c] = 0;
      } else if (in.parts.count > 0) {
        stage_parts(tile + r * kTile, in, k, first_row + r, begin, columns);
      } else {
        stage_row(tile + r * kTile, in, k, first_row + r, begin, columns, statistics[r]);
      }
    }
    __syncthreads();
    if (has_unit) weights.template multiply<kRows, kTile>(sums, tile, begin, columns);
  }
  GPU_UNROLL
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 2; ++i) {
      sums[i][r] = gpu::warp_sum(sums[i][r]);
      if (lane == 0) of_warps[(warp * 2 + i) * kRows + r] = sums[i][r];
    }
  }
  __syncthreads();
  // A lane for each row, adding the parts in their order.
  if (!has_unit || warp % parts != 0 || lane >= rows) return;
  float total[2] = {0, 0};
  for (int p = 0; p < parts; ++p) {
    for (int i = 0; i < 2; ++i) total[i] += of_warps[((warp + p) * 2 + i) * kRows + lane];
  }
  out.store(first_row + lane, unit, total[0], total[1]);
}

template <class W, int kRows, class Output>
void launch_product(const Output& out, const DeviceInput& in, const DeviceMatrix& w) {
  // Warps to keep a device's multiprocessors busy, and columns enough for each.
  constexpr int64_t kWantedWarps = 1024, kLeastPieces = 2 * gpu::kWarp;
  const int64_t pieces = w.stride * static_cast<int64_t>(sizeof(W)) / kDevicePiece;
  int parts = 1;
  while (parts < kDecodeWarps && out.units() * parts < kWantedWarps && pieces >= 2 * parts * kLeastPieces) parts *= 2;
  const gpu::Grid grid(gpu::blocks_for(out.units(), kDecodeWarps / parts), gpu::blocks_for(in.rows, kRows));
  gpu::launch(product<W, kRows, Output>, grid, kDecodeThreads, 0, gpu::stream(), out, in, static_cast<const W*>(w.data),
              w.stride, w.k, parts);
}

template <class Output>
void run_product(const Output& out, const DeviceInput& in, const DeviceMatrix& w) {
  const auto with_rows = [&](auto type) {
    using W = typename decltype(type)::type;
    if (in.rows == 1) return launch_product<W, 1>(out, in, w);
    launch_product<W, 4>(out, in, w);
  };
  if (w.dtype == Dtype::bf16) return with_rows(Type<bf16>());
  with_rows(Type<float>());
}

}  // namespace
}  // namespace taper::cuda

namespace taper {

void cuda::decode_product(const DeviceProduct& a) {
  if (a.is_gated) return run_product(WriteGated{a.y, a.y_stride, a.w.rows / 2, a.w.bias}, a.in, a.w);
  run_product(WriteRows{a.y, a.y_stride, a.w.rows, a.w.bias, a.act, a.adds}, a.in, a.w);
}

void cuda::decode_qkv(const DeviceQkv& a) {
  run_product(WriteQkv{a.q, a.w.bias, a.cos, a.sin, a.rows, a.cache}, a.in, a.w);
}

}  // namespace taper
