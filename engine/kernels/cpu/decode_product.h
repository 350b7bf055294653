// Products with packed matrices, for any of the ways to read a column or a pair of columns (decode.h: layout, order of
// sums).
#pragma once

#include "engine/kernels/cpu/vector.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// How weights are read: kColumns at a time from one panel, multiplied with as many entries of x into one sum.
struct F32Panels {
  using Weight = float;
  using Input = float;
  static constexpr int kColumns = 1;
  using Step = F32x16;
  TAPER_INLINE static void read(Step& step, const Weight* w) { load(step, w); }
  TAPER_INLINE static void add(F32x16& sum, const Step& step, const Input* x) { add_product(sum, step, x[0]); }
};

// bf16 weights widened to f32, exactly; x stays f32.
struct WidenedPanels {
  using Weight = bf16;
  using Input = float;
  static constexpr int kColumns = 2;
  struct Step {
    F32x16 first, second;
  };
  TAPER_INLINE static void read(Step& step, const Weight* w) {
    unrolled<kRegisters>([&](auto i) TAPER_INLINE_LAMBDA {
      U32 both;
      std::memcpy(&both, w + i * kColumns * kRegisterLanes, sizeof both);
      step.first.part[i] = (F32)(both << 16);
      step.second.part[i] = (F32)(both & 0xffff0000u);
    });
  }
  TAPER_INLINE static void add(F32x16& sum, const Step& step, const Input* x) {
    add_product(sum, step.first, x[0]);
    add_product(sum, step.second, x[1]);
  }
};

// int8 weights widened to f32, exactly; their scale comes after the sum.
struct Int8Panels {
  using Weight = int8_t;
  using Input = float;
  static constexpr int kColumns = 1;
  using Step = F32x16;
  TAPER_INLINE static void read(Step& step, const Weight* w) {
    unrolled<kRegisters>([&](auto i) TAPER_INLINE_LAMBDA { step.part[i] = widened(w + i * kRegisterLanes); });
  }
  TAPER_INLINE static void add(F32x16& sum, const Step& step, const Input* x) { add_product(sum, step, x[0]); }
};

template <class Panels, int R, int P>
struct Tile {
  using Weight = typename Panels::Weight;
  using Input = typename Panels::Input;

  static constexpr int64_t kStep = Panels::kColumns;

  TAPER_INLINE static void add_step(F32x16 (&sum)[R][P], const Input* x, int64_t x_stride, const Weight* w,
                                    int64_t panel_stride) {
    unrolled<P>([&](auto p) TAPER_INLINE_LAMBDA {
      typename Panels::Step step;
      Panels::read(step, w + p * panel_stride);
      unrolled<R>([&](auto r) TAPER_INLINE_LAMBDA { Panels::add(sum[r][p], step, x + r * x_stride); });
    });
  }

  // Two steps of the next tile: panels of bf16 and int8 are too short for the processor to see for itself where reading
  // goes on. Nearly twice as fast where the matrices of a token do not fit the second-level cache; f32 gains nothing.
  TAPER_INLINE static void fetch_next(const Weight* w, int64_t panel_stride) {
    constexpr int64_t kLine = 64, kBytes = 2 * kStep * kPanelRows * sizeof(Weight);
    unrolled<P>([&](auto p) TAPER_INLINE_LAMBDA {
      const auto* next = reinterpret_cast<const std::byte*>(w + (P + p) * panel_stride);
      unrolled<(kBytes + kLine - 1) / kLine>([&](auto line)
                                                 TAPER_INLINE_LAMBDA { __builtin_prefetch(next + line * kLine); });
    });
  }

  // sum[r][p] over one slice of k columns.
  TAPER_INLINE static void slice(F32x16 (&sum)[R][P], const Input* x, int64_t x_stride, const Weight* w,
                                 int64_t panel_stride, int64_t k) {
    F32x16 even[R][P] = {}, odd[R][P] = {};
    int64_t j = 0;
    for (; j + 2 * kStep <= k; j += 2 * kStep) {
      if constexpr (R == 1 && sizeof(Weight) < sizeof(float)) fetch_next(w + j * kPanelRows, panel_stride);
      add_step(even, x + j, x_stride, w + j * kPanelRows, panel_stride);
      add_step(odd, x + j + kStep, x_stride, w + (j + kStep) * kPanelRows, panel_stride);
    }
    if (j < k) add_step(even, x + j, x_stride, w + j * kPanelRows, panel_stride);
    unrolled<R * P>([&](auto i) TAPER_INLINE_LAMBDA {
      sum[i / P][i % P] = even[i / P][i % P];
      sum[i / P][i % P] += odd[i / P][i % P];
    });
  }

  // Slices as a balanced tree.
  static void tree(F32x16 (&sum)[R][P], const Input* x, int64_t x_stride, const Weight* w, int64_t panel_stride,
                   int64_t k, int slices) {
    if (slices == 1) return slice(sum, x, x_stride, w, panel_stride, k);
    F32x16 right[R][P];
    const int64_t half = slices / 2 * k;
    tree(sum, x, x_stride, w, panel_stride, k, slices / 2);
    tree(right, x + half, x_stride, w + half * kPanelRows, panel_stride, k, slices / 2);
    unrolled<R * P>([&](auto i) TAPER_INLINE_LAMBDA { sum[i / P][i % P] += right[i / P][i % P]; });
  }

  // P panels from `panel` on, R rows from `row` on.
  static void run(const PanelProduct& a, int64_t row, int64_t panel) {
    const Input* x = static_cast<const Input*>(a.x) + row * a.x_stride;
    const Weight* w = static_cast<const Weight*>(a.w) + panel * a.panel_stride;
    F32x16 sum[R][P];
    if (a.slices == 1) {
      slice(sum, x, a.x_stride, w, a.panel_stride, a.k);
    } else {
      tree(sum, x, a.x_stride, w, a.panel_stride, a.k, a.slices);
    }
    unrolled<R * P>([&](auto i) TAPER_INLINE_LAMBDA {
      constexpr int r = i / P, p = i % P;
      F32x16 bias{};
      if (a.bias) load(bias, a.bias + (panel + p) * kPanelRows);
      if (a.scale) {
        // Every tile rounds this once, or every tile twice: its bits are those of any other.
        F32x16 scale;
        load(scale, a.scale + (panel + p) * kPanelRows);
        add_product(bias, sum[r][p], scale);
        sum[r][p] = bias;
      } else if (a.bias) {
        sum[r][p] += bias;
      }
      store(a.y + (row + r) * a.y_stride + (panel + p) * kPanelRows, sum[r][p]);
    });
  }
};

// The rows that one panel of weights serves before the next is read: as many sums as fit the registers.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 6, kTilePanels = 2, kLonePanels = 4;
#elif defined(__AVX2__)
inline constexpr int kTileRows = 3, kTilePanels = 1, kLonePanels = 2;
#else
inline constexpr int kTileRows = 1, kTilePanels = 1, kLonePanels = 1;
#endif

template <class Panels, int P, int R = kTileRows>
TAPER_INLINE void rows_of_tile(const PanelProduct& a, int64_t row, int64_t rows, int64_t panel) {
  if constexpr (R == 1) {
    Tile<Panels, 1, P>::run(a, row, panel);
  } else {
    if (rows == R) return Tile<Panels, R, P>::run(a, row, panel);
    rows_of_tile<Panels, P, R - 1>(a, row, rows, panel);
  }
}

template <class Panels>
void product(const PanelProduct& a) {
  int64_t panel = 0;
  if (a.rows == 1) {
    for (; panel + kLonePanels <= a.panels; panel += kLonePanels) Tile<Panels, 1, kLonePanels>::run(a, 0, panel);
    for (; panel < a.panels; ++panel) Tile<Panels, 1, 1>::run(a, 0, panel);
    return;
  }
  const auto column_of_tiles = [&]<int P>(std::integral_constant<int, P>) {
    for (int64_t row = 0; row < a.rows; row += kTileRows) {
      const int64_t rows = a.rows - row < kTileRows ? a.rows - row : kTileRows;
      rows_of_tile<Panels, P>(a, row, rows, panel);
    }
  };
  for (; panel + kTilePanels <= a.panels; panel += kTilePanels)
    column_of_tiles(std::integral_constant<int, kTilePanels>{});
  for (; panel < a.panels; ++panel) column_of_tiles(std::integral_constant<int, 1>{});
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
