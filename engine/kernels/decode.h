// The inner loops of decoding: plain functions on raw memory that the threads of one team call on their own parts.
// infer/decoder_pass.cpp holds the order of the work; here is what the instruction set decides.
//
// Packed matrices. W [M, K] is cut into panels of 16 rows; a panel lies column after column, so that one vector of 16
// lanes holds the same column of 16 rows:
//   f32    panel p, column k, lane i  at  (p * K + k) * 16 + i
//   bf16   two columns side by side in 32 bits: (p * K + k / 2 * 2) * 16 + i * 2 + k % 2; K is even, padded with zeros
//   int8   as f32, and a scale for each row (int8_row.h), which multiplies the row's sum: what is computed stays f32
// Rows beyond M are zero. A matrix is then read once, front to back, without sums across lanes, and the same layout
// serves one row of x or many. The KV cache has it too: keys are rows, values are columns; f32 with int8 weights.
//
// Every sum has one order, whatever the number of rows and threads: every other column (or pair of bf16 columns) of a
// slice into one of two sums, then their sum, then slices added as a balanced tree. So a prompt gives the same bits in
// one block or token by token; only the tiles of AMX sum bf16 prompts in an order of their own.
#pragma once

#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/kernels/kernels.h"

namespace taper {

// Of packed matrices.
enum class WeightType : uint8_t { f32, bf16, int8 };

const char* to_string(WeightType type);
constexpr int64_t size_of(WeightType type) { return type == WeightType::f32 ? 4 : type == WeightType::bf16 ? 2 : 1; }

inline constexpr int64_t kPanelRows = 16;

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// y[r, m] = bias[m] + scale[m] * the sum over k of x[r, k] W[m, k], for whole panels of W.
struct PanelProduct {
  float* y = nullptr;
  int64_t y_stride = 0;     // between rows, in elements, as everywhere here
  const void* x = nullptr;  // DecodeKernels::input_dtype
  int64_t x_stride = 0;
  int64_t rows = 0;         // of x and y
  const void* w = nullptr;  // the first panel, at its first column
  int64_t panel_stride = 0;
  int64_t panels = 0;
  int64_t k = 0;                 // columns of a slice; even where W is bf16
  int slices = 1;                // side by side; a power of two, at most kMaxSlices
  const float* scale = nullptr;  // [panels * 16], of int8 rows; absent: 1
  const float* bias = nullptr;   // [panels * 16] or absent
};
inline constexpr int kMaxSlices = 8;

// What stands where a pre-norm transformer normalises.
enum class NormForm : uint8_t {
  none,   // folded away: x = h
  norm,   // x = h'/stat gamma + beta
  scale,  // x = h' (c gamma_tilde) + beta_tilde
  both,   // g norm + (1 - g) scale
};

struct DecodeNorm {
  NormForm form = NormForm::none;
  NormKind kind = NormKind::rms;
  float eps = 0;
  float gate = 1;
  const float* gamma = nullptr;  // [C]
  const float* beta = nullptr;   // [C]; layer norm alone
  const float* scale = nullptr;  // [C] = c gamma_tilde
  const float* shift = nullptr;  // [C] = beta_tilde; layer norm alone
};

// h += bias + scale * the sum of the parts; x = the norm of h. Rows begin to end of [*, C] arrays. The scale comes
// after the sum, so that in how many parts it was made changes no bit.
struct ResidualNorm {
  float* h = nullptr;
  int64_t h_stride = 0;
  const float* parts =
      nullptr;  // [part_count] arrays, part_stride apart; rows h_stride apart; added as a balanced tree
  int64_t part_stride = 0;
  int part_count = 0;            // 0, or a power of two
  const float* scale = nullptr;  // [C], of int8 rows; absent: 1
  const float* bias = nullptr;   // [C] or absent
  DecodeNorm norm;
  void* x = nullptr;  // input_dtype; absent: only h is wanted
  int64_t x_stride = 0;
  int64_t channels = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Consecutive tokens of one sequence against the keys and values of one head.
struct CachedAttention {
  void* y = nullptr;  // [rows, D], input_dtype
  int64_t y_stride = 0;
  const float* q = nullptr;
  int64_t q_stride = 0;
  int64_t rows = 0;
  int64_t first_count = 0;       // row r attends to the first first_count + r * count_step positions
  int64_t count_step = 1;        // 0: rows are the query heads of one token
  const void* keys = nullptr;    // [positions, D] packed
  const void* values = nullptr;  // [D, positions] packed
  int64_t value_panel_stride = 0;
  int64_t head_size = 0;
  float scale = 1;
  float* scores = nullptr;  // workspace: kAttentionTile rows of scores_stride >= round_up(positions, 16)
  int64_t scores_stride = 0;
  void* inputs = nullptr;  // workspace: kAttentionTile * max(scores_stride, D + 1) of input_dtype
  float* mixed = nullptr;  // workspace: kAttentionTile rows of round_up(D, 16)
};
inline constexpr int64_t kAttentionTile = 24;

struct DecodeKernels {
  const char* name;
  WeightType weight_type;
  Dtype cache_dtype;
  Dtype input_dtype;  // of the x of products: bf16 only where the processor multiplies bf16
  void (*product)(const PanelProduct&);
  void (*residual_norm)(const ResidualNorm&);
  void (*attention)(const CachedAttention&);
  // x[r, c] = act(y[r, c]); with is_gated, y holds 16 gates and 16 values in turn and x[r, c] = silu(gate) * value.
  // `columns` counts x's, a multiple of 16. x is of input_dtype.
  void (*activate)(void* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t rows, int64_t columns,
                   Activation act, bool is_gated);
  // Pairs (i, i + D/2) of one head turn by the angle of its position; cos, sin [D/2].
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t head_size);
  // One panel from its 16 rows of k columns; a row that is null is zero. scales [16] are written for int8 alone.
  void (*pack)(void* panel, float* scales, int64_t k_padded, const float* const* rows, int64_t k);
  void (*append_key)(void* keys, const float* k, int64_t head_size, int64_t position);
  void (*append_value)(void* values, int64_t panel_stride, const float* v, int64_t head_size, int64_t position);
};

// The fastest this processor runs.
const DecodeKernels& decode_kernels(WeightType weights);

namespace cpu {
#define TAPER_DECODE_KERNELS(isa)                 \
  namespace isa {                                 \
  extern const DecodeKernels decode_kernels_f32;  \
  extern const DecodeKernels decode_kernels_bf16; \
  extern const DecodeKernels decode_kernels_int8; \
  }
TAPER_DECODE_KERNELS(base)
TAPER_DECODE_KERNELS(avx2)
TAPER_DECODE_KERNELS(avx512)
TAPER_DECODE_KERNELS(avx512bf16)
TAPER_DECODE_KERNELS(amx)
#undef TAPER_DECODE_KERNELS
}  // namespace cpu

}  // namespace taper
