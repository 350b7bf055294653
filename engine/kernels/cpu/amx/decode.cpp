// Prompts in bf16 on AMX: a panel of packed weights is a tile as it lies, 16 pairs of columns by 16 rows.
#include <algorithm>

#include "engine/kernels/cpu/decode_dot.h"

namespace taper::cpu::TAPER_ISA {
namespace {

constexpr int kTileSide = 16;     // rows of x, and of a panel
constexpr int kTileColumns = 32;  // of x and w in one tile

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// 32 rows by 2 panels: four sums, each tile of x and w serving two.
struct Block {
  alignas(64) float sum[2][2][kTileSide * kTileSide];
};

struct BlockInput {
  const bf16* x;
  int64_t x_bytes;  // between rows
  const bf16* w;
  int64_t panel_stride;
  int64_t k;
};

void slice(Block& block, const BlockInput& a) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t j = 0; j < a.k; j += kTileColumns) {
    _tile_loadd(4, a.x + j, a.x_bytes);
    _tile_loadd(5, a.x + j + kTileSide * (a.x_bytes / 2), a.x_bytes);
    _tile_loadd(6, a.w + j * kPanelRows, 64);
    _tile_loadd(7, a.w + a.panel_stride + j * kPanelRows, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, block.sum[0][0], 64);
  _tile_stored(1, block.sum[0][1], 64);
  _tile_stored(2, block.sum[1][0], 64);
  _tile_stored(3, block.sum[1][1], 64);
}

void tree(Block& block, const BlockInput& a, int slices) {
  if (slices == 1) return slice(block, a);
  const int64_t half = slices / 2 * a.k;
  BlockInput second = a;
  second.x += half;
  second.w += half * kPanelRows;
  Block right;
  tree(block, a, slices / 2);
  tree(right, second, slices / 2);
  float* to = &block.sum[0][0][0];
  const float* from = &right.sum[0][0][0];
  for (int i = 0; i < 4 * kTileSide * kTileSide; ++i) to[i] += from[i];
}

void write(const PanelProduct& a, const Block& block, int64_t row, int64_t panel, int64_t panels) {
  for (int64_t r = 0; r < 2 * kTileSide; ++r) {
    for (int64_t p = 0; p < panels; ++p) {
      const float* from = block.sum[r / kTileSide][p] + r % kTileSide * kTileSide;
      float* y = a.y + (row + r) * a.y_stride + (panel + p) * kPanelRows;
      const float* bias = a.bias ? a.bias + (panel + p) * kPanelRows : nullptr;
      for (int64_t i = 0; i < kPanelRows; ++i) y[i] = from[i] + (bias ? bias[i] : 0.0f);
    }
  }
}

// Whole blocks of rows on tiles, the rest by dot products. A last panel alone takes the place of two: which panels a
// call has depends on the number of threads, and no sum may.
void tiled_product(const PanelProduct& a) {
  const bf16* x = static_cast<const bf16*>(a.x);
  const int64_t rows = a.k % kTileColumns == 0 ? a.rows / (2 * kTileSide) * (2 * kTileSide) : 0;
  if (rows > 0) {
    const TileConfig config;
    _tile_loadconfig(&config);
    for (int64_t panel = 0; panel < a.panels; panel += 2) {
      const int64_t panels = std::min<int64_t>(2, a.panels - panel);
      const bf16* w = static_cast<const bf16*>(a.w) + panel * a.panel_stride;
      for (int64_t row = 0; row < rows; row += 2 * kTileSide) {
        Block block;
        tree(block, {x + row * a.x_stride, a.x_stride * 2, w, panels == 2 ? a.panel_stride : 0, a.k}, a.slices);
        write(a, block, row, panel, panels);
      }
    }
    _tile_release();
  }
  if (rows == a.rows) return;
  PanelProduct rest = a;
  rest.y += rows * a.y_stride;
  rest.x = x + rows * a.x_stride;
  rest.rows -= rows;
  product<DotPanels>(rest);
}

constexpr DecodeKernels with_tiles() {
  DecodeKernels kernels = make_decode_kernels<DotPanels>("bf16 weights and activations, prompts on tiles");
  kernels.product = &tiled_product;
  return kernels;
}

}  // namespace

const DecodeKernels decode_kernels_bf16 = with_tiles();

}  // namespace taper::cpu::TAPER_ISA
