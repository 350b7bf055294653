// What a token does between its products: residual sums and norms, attention over the cache, activations, packing.
#pragma once

#include <cmath>

#include "engine/kernels/cpu/decode_product.h"
#include "engine/kernels/int8_row.h"
#include "engine/kernels/scalar_math.h"

namespace taper::cpu::TAPER_ISA {
namespace {

TAPER_INLINE void narrow_row(float* x, const float* y, int64_t n) {
  if (x == y) return;
  for (int64_t i = 0; i < n; ++i) x[i] = y[i];
}

TAPER_INLINE void narrow_row(bf16* x, const float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = bf16(y[i]);
}

// h[c] += bias[c] + scale[c] * the parts as a balanced tree.
template <int kParts>
TAPER_INLINE void add_parts(float* h, const float* parts, int64_t stride, const float* scale, const float* bias,
                            int64_t n) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    float sum = 0;
    if constexpr (kParts == 1) {
      sum = parts[c];
    } else if constexpr (kParts == 2) {
      sum = parts[c] + parts[stride + c];
    } else if constexpr (kParts == 4) {
      sum = (parts[c] + parts[stride + c]) + (parts[2 * stride + c] + parts[3 * stride + c]);
    } else if constexpr (kParts == 8) {
      sum = ((parts[c] + parts[stride + c]) + (parts[2 * stride + c] + parts[3 * stride + c])) +
            ((parts[4 * stride + c] + parts[5 * stride + c]) + (parts[6 * stride + c] + parts[7 * stride + c]));
    }
    if (scale) {
      h[c] += sum * scale[c] + (bias ? bias[c] : 0.0f);
    } else {
      h[c] += bias ? sum + bias[c] : sum;
    }
  }
}

// mean of (h - mean)^2; mean is 0 for RMS.
TAPER_INLINE float mean_square(const float* h, float mean, int64_t n) {
  F32x16 sums[2] = {};
  F32x16 centre;
  splat(centre, mean);
  int64_t c = 0;
  for (; c + 32 <= n; c += 32) {
    for (int i = 0; i < 2; ++i) {
      F32x16 v;
      load(v, h + c + 16 * i);
      v -= centre;
      add_product(sums[i], v, v);
    }
  }
  sums[0] += sums[1];
  float sum = sum_lanes(sums[0]);
  for (; c < n; ++c) sum += (h[c] - mean) * (h[c] - mean);
  return sum / static_cast<float>(n);
}

TAPER_INLINE float mean_of(const float* h, int64_t n) {
  F32x16 sums[2] = {};
  int64_t c = 0;
  for (; c + 32 <= n; c += 32) {
    for (int i = 0; i < 2; ++i) {
      F32x16 v;
      load(v, h + c + 16 * i);
      sums[i] += v;
    }
  }
  sums[0] += sums[1];
  float sum = sum_lanes(sums[0]);
  for (; c < n; ++c) sum += h[c];
  return sum / static_cast<float>(n);
}

template <class Input>
void normalise_row(Input* x, const float* h, const DecodeNorm& norm, int64_t n) {
  if (norm.form == NormForm::none) return narrow_row(x, h, n);
  const float mean = norm.kind == NormKind::layer ? mean_of(h, n) : 0.0f;
  const bool has_shift = norm.kind == NormKind::layer;
  if (norm.form == NormForm::scale) {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) x[c] = Input((h[c] - mean) * norm.scale[c] + (has_shift ? norm.shift[c] : 0.0f));
    return;
  }
  const float reciprocal = 1.0f / std::sqrt(mean_square(h, mean, n) + norm.eps);
  if (norm.form == NormForm::norm) {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c)
      x[c] = Input((h[c] - mean) * reciprocal * norm.gamma[c] + (has_shift ? norm.beta[c] : 0.0f));
    return;
  }
  const float g = norm.gate;
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    const float centred = h[c] - mean;
    const float normed = centred * reciprocal * norm.gamma[c] + (has_shift ? norm.beta[c] : 0.0f);
    const float scaled = centred * norm.scale[c] + (has_shift ? norm.shift[c] : 0.0f);
    x[c] = Input(g * normed + (1.0f - g) * scaled);
  }
}

template <class Input>
void residual_norm(const ResidualNorm& a) {
  for (int64_t row = a.begin; row < a.end; ++row) {
    float* h = a.h + row * a.h_stride;
    const float* parts = a.parts + row * a.h_stride;
    switch (a.part_count) {
      case 1:
        add_parts<1>(h, parts, a.part_stride, a.scale, a.bias, a.channels);
        break;
      case 2:
        add_parts<2>(h, parts, a.part_stride, a.scale, a.bias, a.channels);
        break;
      case 4:
        add_parts<4>(h, parts, a.part_stride, a.scale, a.bias, a.channels);
        break;
      case 8:
        add_parts<8>(h, parts, a.part_stride, a.scale, a.bias, a.channels);
        break;
      default:
        break;
    }
    if (a.x) normalise_row(static_cast<Input*>(a.x) + row * a.x_stride, h, a.norm, a.channels);
  }
}

// scores[0, count) becomes the softmax of scale * scores; [count, padded) becomes 0. padded is a multiple of 16.
TAPER_INLINE void softmax_row(float* scores, int64_t count, int64_t padded, float scale) {
  const int64_t filled = round_up(count, kPanelRows);
  for (int64_t j = count; j < filled; ++j) scores[j] = -INFINITY;
  F32x16 greatest;
  load(greatest, scores);
  for (int64_t j = kPanelRows; j < filled; j += kPanelRows) {
    F32x16 s;
    load(s, scores + j);
    raise_to(greatest, s);
  }
  const float top = max_lanes(greatest);
  F32x16 sums = {};
  for (int64_t j = 0; j < filled; j += kPanelRows) {
#pragma omp simd
    for (int64_t i = 0; i < kPanelRows; ++i) scores[j + i] = math::exp((scores[j + i] - top) * scale);
    F32x16 s;
    load(s, scores + j);
    sums += s;
  }
  const float reciprocal = 1.0f / sum_lanes(sums);
#pragma omp simd
  for (int64_t j = 0; j < filled; ++j) scores[j] *= reciprocal;
  for (int64_t j = filled; j < padded; ++j) scores[j] = 0;
}

template <class Panels>
void attention(const CachedAttention& a) {
  using Weight = typename Panels::Weight;
  using Input = typename Panels::Input;
  const int64_t k_padded = sizeof(Weight) == 2 ? round_up(a.head_size, 2) : a.head_size;
  Input* const inputs = static_cast<Input*>(a.inputs);
  for (int64_t first = 0; first < a.rows; first += kAttentionTile) {
    const int64_t rows = a.rows - first < kAttentionTile ? a.rows - first : kAttentionTile;
    const int64_t most = a.first_count + (first + rows - 1) * a.count_step;
    const int64_t padded = round_up(most, kPanelRows);
    for (int64_t r = 0; r < rows; ++r) {
      narrow_row(inputs + r * k_padded, a.q + (first + r) * a.q_stride, a.head_size);
      for (int64_t i = a.head_size; i < k_padded; ++i) inputs[r * k_padded + i] = Input(0.0f);
    }
    PanelProduct scores;
    scores.y = a.scores;
    scores.y_stride = a.scores_stride;
    scores.x = inputs;
    scores.x_stride = k_padded;
    scores.rows = rows;
    scores.w = a.keys;
    scores.panel_stride = k_padded * kPanelRows;
    scores.panels = padded / kPanelRows;
    scores.k = k_padded;
    product<Panels>(scores);
    for (int64_t r = 0; r < rows; ++r)
      softmax_row(a.scores + r * a.scores_stride, a.first_count + (first + r) * a.count_step, padded, a.scale);

    PanelProduct mix;
    mix.y = a.mixed;
    mix.y_stride = round_up(a.head_size, kPanelRows);
    if constexpr (sizeof(Input) == sizeof(float)) {
      mix.x = a.scores;
    } else {
      for (int64_t r = 0; r < rows; ++r)
        narrow_row(inputs + r * a.scores_stride, a.scores + r * a.scores_stride, padded);
      mix.x = inputs;
    }
    mix.x_stride = a.scores_stride;
    mix.rows = rows;
    mix.w = a.values;
    mix.panel_stride = a.value_panel_stride;
    mix.panels = round_up(a.head_size, kPanelRows) / kPanelRows;
    mix.k = sizeof(Weight) == 2 ? round_up(most, 2) : most;
    product<Panels>(mix);
    for (int64_t r = 0; r < rows; ++r)
      narrow_row(static_cast<Input*>(a.y) + (first + r) * a.y_stride, a.mixed + r * mix.y_stride, a.head_size);
  }
}

// Whole panels: what lies beyond the matrix's rows is zero and stays zero.
template <class Input>
void activate(void* to, int64_t x_stride, const float* from, int64_t y_stride, int64_t rows, int64_t columns,
              Activation act, bool is_gated) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* y = from + r * y_stride;
    Input* x = static_cast<Input*>(to) + r * x_stride;
    if (is_gated) {
      for (int64_t c = 0; c < columns; c += kPanelRows) {
#pragma omp simd
        for (int64_t i = 0; i < kPanelRows; ++i)
          x[c + i] = Input(math::Silu::value(y[2 * c + i]) * y[2 * c + kPanelRows + i]);
      }
    } else if (act == Activation::none) {
      narrow_row(x, y, columns);
    } else {
      math::with_function(act, [&](auto function) {
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c) x[c] = Input(function.value(y[c]));
      });
    }
  }
}

void rotate(float* head, const float* cos, const float* sin, int64_t head_size) {
  const int64_t half = head_size / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cos[i] - b * sin[i];
    head[half + i] = a * sin[i] + b * cos[i];
  }
}

// Where column k of lane i of a panel lies.
template <class Weight>
constexpr int64_t packed_index(int64_t lane, int64_t k) {
  return sizeof(Weight) == 2 ? k / 2 * 2 * kPanelRows + lane * 2 + k % 2 : k * kPanelRows + lane;
}

template <class Weight>
void pack(void* to, [[maybe_unused]] float* scales, int64_t k_padded, const float* const* rows, int64_t k) {
  constexpr bool is_int8 = std::is_same_v<Weight, int8_t>;
  if constexpr (is_int8) {
    for (int64_t lane = 0; lane < kPanelRows; ++lane) scales[lane] = rows[lane] ? int8_scale(rows[lane], k) : 0.0f;
  }
  Weight* panel = static_cast<Weight*>(to);
  for (int64_t j = 0; j < k_padded; ++j) {
    for (int64_t lane = 0; lane < kPanelRows; ++lane) {
      const float w = rows[lane] && j < k ? rows[lane][j] : 0.0f;
      if constexpr (is_int8) {
        panel[packed_index<Weight>(lane, j)] = to_int8(w, scales[lane]);
      } else {
        panel[packed_index<Weight>(lane, j)] = Weight(w);
      }
    }
  }
}

template <class Weight>
void append_key(void* keys, const float* k, int64_t head_size, int64_t position) {
  const int64_t k_padded = sizeof(Weight) == 2 ? round_up(head_size, 2) : head_size;
  Weight* panel = static_cast<Weight*>(keys) + position / kPanelRows * kPanelRows * k_padded;
  for (int64_t i = 0; i < head_size; ++i) panel[packed_index<Weight>(position % kPanelRows, i)] = Weight(k[i]);
}

template <class Weight>
void append_value(void* values, int64_t panel_stride, const float* v, int64_t head_size, int64_t position) {
  for (int64_t i = 0; i < head_size; ++i) {
    Weight* panel = static_cast<Weight*>(values) + i / kPanelRows * panel_stride;
    panel[packed_index<Weight>(i % kPanelRows, position)] = Weight(v[i]);
    // The other half of the pair is read with weight 0: what an earlier text left there may be no number.
    if (sizeof(Weight) == 2 && position % 2 == 0)
      panel[packed_index<Weight>(i % kPanelRows, position + 1)] = Weight(0.0f);
  }
}

// Weights as Panels has them, keys and values as CachePanels.
template <class Panels, class CachePanels = Panels>
constexpr DecodeKernels make_decode_kernels(const char* name) {
  using Weight = typename Panels::Weight;
  using Input = typename Panels::Input;
  using Cached = typename CachePanels::Weight;
  static_assert(std::is_same_v<Input, typename CachePanels::Input>);
  return {name,
          sizeof(Weight) == 4   ? WeightType::f32
          : sizeof(Weight) == 2 ? WeightType::bf16
                                : WeightType::int8,
          DtypeOf<Cached>::value,
          DtypeOf<Input>::value,
          &product<Panels>,
          &residual_norm<Input>,
          &attention<CachePanels>,
          &activate<Input>,
          &rotate,
          &pack<Weight>,
          &append_key<Cached>,
          &append_value<Cached>};
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
