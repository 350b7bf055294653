#include "infer/decoder_pass.h"

#include <algorithm>
#include <cmath>

#include "engine/core/shape.h"
#include "model/attention.h"

namespace taper {
namespace {

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

// Hands out parts of one block of memory; counts them first.
class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count, int64_t element = sizeof(T)) {
    std::byte* place = base_ ? base_ + used_ : nullptr;
    // A line between any two, so that no two threads write to one.
    used_ += round_up(checked_product(count, element, "decode: workspace"), kCacheLine) + kCacheLine;
    return reinterpret_cast<T*>(place);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace

DecodeWorkspace::DecodeWorkspace(const DecodeWeights& weights, int64_t rows, int64_t logits_rows, int threads) {
  const DecodeShape& s = weights.shape();
  const int64_t input = size_of(weights.kernels().input_dtype);
  own.resize(static_cast<size_t>(threads));
  attention.resize(static_cast<size_t>(threads));
  scores_stride = round_up(s.config.context, kPanelRows);
  part_stride = rows * s.channels;
  const auto lay_out = [&](std::byte* base) {
    Layout layout(base);
    const auto stream = [&](Stream& stream, int64_t count) {
      stream.h = layout.take<float>(count * s.channels);
      stream.x = layout.take<std::byte>(count * s.channels_k, input);
    };
    stream(shared, rows);
    for (Stream& each : own) stream(each, std::min(rows, kOwnRows));
    for (Attention& each : attention) {
      each.scores = layout.take<float>(kAttentionTile * scores_stride);
      each.inputs = layout.take<std::byte>(kAttentionTile * std::max(scores_stride, s.config.head_size + 1), input);
      each.mixed = layout.take<float>(kAttentionTile * round_up(s.config.head_size, kPanelRows));
    }
    qkv = layout.take<float>(rows * s.groups * s.group_rows);
    attended = layout.take<std::byte>(rows * s.attention_k, input);
    up = layout.take<float>(rows * s.hidden_rows());
    activated = layout.take<std::byte>(rows * s.hidden, input);
    for (float*& part : parts) part = layout.take<float>(kMaxSlices * part_stride);
    logits = layout.take<float>(logits_rows * s.vocabulary);
    return layout.used();
  };
  memory_ = HugeMemory(lay_out(nullptr), "decode: workspace");
  lay_out(memory_.data());
}

DecoderPass::DecoderPass(const DecodeWeights& weights, const KvCache& cache, DecodeWorkspace& workspace,
                         std::span<const DecodeRow> rows, int64_t first_logits_row, const Worker& worker,
                         DecodeProfile* profile)
    : weights_(weights),
      kernels_(weights.kernels()),
      shape_(weights.shape()),
      cache_(cache),
      ws_(workspace),
      rows_(rows),
      row_count_(std::ssize(rows)),
      first_logits_row_(first_logits_row),
      worker_(worker),
      profile_(profile),
      owns_branches_(is_power_of_two(worker.count) && worker.count <= std::min(shape_.groups, shape_.slices)),
      owns_rows_(row_count_ <= kOwnRows),
      stream_(owns_rows_ ? ws_.own[static_cast<size_t>(worker.index)] : ws_.shared),
      input_size_(size_of(kernels_.input_dtype)) {}

void DecoderPass::run() {
  lap(DecodeStage::wait);
  embed();
  lap(DecodeStage::embed);
  for (int64_t i = 0; i < shape_.config.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
    residual_norm(layer.norm1, i == 0 ? nullptr : &weights_.layers[static_cast<size_t>(i - 1)].down, 1);
    attention(i);
    residual_norm(layer.norm2, &layer.out, 0);
    mlp(layer);
  }
  if (first_logits_row_ == row_count_) return;
  residual_norm(weights_.final_norm, &weights_.layers.back().down, 1, first_logits_row_);
  unembed();
  lap(DecodeStage::unembed);
}

void DecoderPass::embed() {
  int64_t begin = 0, end = row_count_;
  if (!owns_rows_) worker_.part(row_count_, 1, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    const DecodeRow& row = rows_[static_cast<size_t>(r)];
    weights_.embed(stream_.h + r * shape_.channels, row.token, row.position);
  }
}

void DecoderPass::residual_norm(const DecodeNorm& norm, const PackedMatrix* source, int branch, int64_t first) {
  ResidualNorm a;
  a.h = stream_.h;
  a.h_stride = shape_.channels;
  a.parts = ws_.parts[branch];
  a.part_stride = ws_.part_stride;
  if (source) {
    a.part_count = part_count_;
    a.scale = source->scale;
    a.bias = source->bias;
  }
  a.norm = norm;
  a.x = stream_.x;
  a.x_stride = shape_.channels_k;
  a.channels = shape_.config.width;
  a.begin = first;
  a.end = row_count_;
  if (!owns_rows_) {
    worker_.part(row_count_, 1, a.begin, a.end);
    a.begin = std::max(a.begin, first);
  }
  if (a.begin < a.end) kernels_.residual_norm(a);
  lap(stage_of(norm.form));
  if (!owns_rows_) meet();
}

PanelProduct DecoderPass::product(float* y, int64_t y_stride, const std::byte* x, int64_t x_stride,
                                  const PackedMatrix& w, int64_t first_panel, int64_t panels) const {
  const int64_t first_row = first_panel * kPanelRows;
  PanelProduct a;
  a.y = y + first_row;
  a.y_stride = y_stride;
  a.x = x;
  a.x_stride = x_stride;
  a.rows = row_count_;
  a.w = w.data + first_row * w.k * size_of(kernels_.weight_type);
  a.panel_stride = w.k * kPanelRows;
  a.panels = panels;
  a.k = w.k;
  a.scale = w.scale ? w.scale + first_row : nullptr;
  a.bias = w.bias ? w.bias + first_row : nullptr;
  return a;
}

void DecoderPass::write_branch(int branch, const std::byte* x, int64_t x_stride, const PackedMatrix& w, int slices) {
  int64_t first_panel = 0, last_panel = w.panels();
  if (!owns_branches_) worker_.part(w.panels(), 1, first_panel, last_panel);
  PanelProduct a = product(ws_.parts[branch], shape_.channels, x, x_stride, w, first_panel, last_panel - first_panel);
  a.k = w.k / slices;
  a.slices = slices;
  a.scale = a.bias = nullptr;  // residual_norm() has them
  part_count_ = owns_branches_ ? worker_.count : 1;
  if (owns_branches_) {
    a.slices = slices / worker_.count;
    const int64_t first_column = worker_.index * a.slices * a.k;
    a.y += worker_.index * ws_.part_stride;
    a.x = x + first_column * input_size_;
    a.w = w.data + first_column * kPanelRows * size_of(kernels_.weight_type);
  }
  kernels_.product(a);
  lap(branch == 0 ? DecodeStage::output : DecodeStage::down);
  meet();
}

void DecoderPass::attention(int64_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t qkv_stride = shape_.groups * shape_.group_rows;
  const int64_t heads_per_group = shape_.group_kv_heads();
  int64_t begin, end;
  if (owns_branches_) {
    worker_.part(shape_.groups, 1, begin, end);
    const int64_t panels = shape_.group_rows / kPanelRows;
    kernels_.product(
        product(ws_.qkv, qkv_stride, stream_.x, shape_.channels_k, w.qkv, begin * panels, (end - begin) * panels));
    lap(DecodeStage::qkv);
    begin *= heads_per_group;
    end *= heads_per_group;
    for (int64_t kv_head = begin; kv_head < end; ++kv_head) append(layer, kv_head);
    lap(DecodeStage::append);
    for (int64_t kv_head = begin; kv_head < end; ++kv_head) attend(layer, kv_head, 0, row_count_);
    lap(DecodeStage::attend);
  } else {
    worker_.part(w.qkv.panels(), 1, begin, end);
    kernels_.product(product(ws_.qkv, qkv_stride, stream_.x, shape_.channels_k, w.qkv, begin, end - begin));
    lap(DecodeStage::qkv);
    meet();
    worker_.part(shape_.config.kv_heads, 1, begin, end);
    for (int64_t kv_head = begin; kv_head < end; ++kv_head) append(layer, kv_head);
    lap(DecodeStage::append);
    meet();
    attend_tiles(layer);
    lap(DecodeStage::attend);
    meet();
  }
  write_branch(0, ws_.attended, shape_.attention_k, w.out, shape_.groups);
}

// Heads in a row of qkv: for each group its q heads, then k, then v.
float* DecoderPass::head(int64_t row, int64_t index, int which) const {
  const int64_t q = shape_.group_heads(), kv = shape_.group_kv_heads();
  const int64_t group = which == 0 ? index / q : index / kv;
  const int64_t inside = which == 0 ? index % q : q + (which - 1) * kv + index % kv;
  return ws_.qkv + (row * shape_.groups + group) * shape_.group_rows + inside * shape_.config.head_size;
}

void DecoderPass::append(int64_t layer, int64_t kv_head) {
  const ModelConfig& config = shape_.config;
  const int64_t sharing = config.heads / config.kv_heads;
  for (int64_t r = 0; r < row_count_; ++r) {
    const auto& [token, sequence, position] = rows_[static_cast<size_t>(r)];
    float* k = head(r, kv_head, 1);
    if (config.positions == Positions::rotary) {
      const float *cos = weights_.cos(position), *sin = weights_.sin(position);
      for (int64_t i = 0; i < sharing; ++i)
        kernels_.rotate(head(r, kv_head * sharing + i, 0), cos, sin, config.head_size);
      kernels_.rotate(k, cos, sin, config.head_size);
    }
    kernels_.append_key(cache_.keys(layer, sequence, kv_head), k, config.head_size, position);
    kernels_.append_value(cache_.values(layer, sequence, kv_head), cache_.value_panel_stride(), head(r, kv_head, 2),
                          config.head_size, position);
  }
}

// Rows [first_row, first_row + rows), cut where the sequence changes.
void DecoderPass::attend(int64_t layer, int64_t kv_head, int64_t first_row, int64_t rows) {
  const ModelConfig& config = shape_.config;
  const int64_t sharing = config.heads / config.kv_heads;
  const DecodeWorkspace::Attention& own = ws_.attention[static_cast<size_t>(worker_.index)];
  CachedAttention a;
  a.value_panel_stride = cache_.value_panel_stride();
  a.head_size = config.head_size;
  a.scale = static_cast<float>(attention_options(config).scale);
  a.scores = own.scores;
  a.scores_stride = ws_.scores_stride;
  a.inputs = own.inputs;
  a.mixed = own.mixed;
  for (int64_t r = first_row, next; r < first_row + rows; r = next) {
    const DecodeRow& row = rows_[static_cast<size_t>(r)];
    for (next = r + 1; next < first_row + rows && rows_[static_cast<size_t>(next)].sequence == row.sequence;) ++next;
    a.keys = cache_.keys(layer, row.sequence, kv_head);
    a.values = cache_.values(layer, row.sequence, kv_head);
    a.first_count = row.position + 1;
    const auto run = [&](int64_t q_head) {
      a.q = head(r, q_head, 0);
      a.y = ws_.attended + (r * shape_.attention_k + q_head * config.head_size) * input_size_;
      kernels_.attention(a);
    };
    if (next == r + 1) {  // one token: the query heads that share these keys
      a.rows = sharing;
      a.count_step = 0;
      a.q_stride = a.y_stride = config.head_size;
      run(kv_head * sharing);
    } else {
      a.rows = next - r;
      a.count_step = 1;
      a.q_stride = shape_.groups * shape_.group_rows;
      a.y_stride = shape_.attention_k;
      for (int64_t i = 0; i < sharing; ++i) run(kv_head * sharing + i);
    }
  }
}

void DecoderPass::attend_tiles(int64_t layer) {
  const int64_t tiles = (row_count_ + kAttentionTile - 1) / kAttentionTile;
  int64_t begin, end;
  worker_.part(shape_.config.kv_heads * tiles, 1, begin, end);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % tiles * kAttentionTile;
    attend(layer, unit / tiles, first, std::min(kAttentionTile, row_count_ - first));
  }
}

void DecoderPass::mlp(const LayerWeights& layer) {
  const ModelConfig& config = shape_.config;
  const int64_t wide = shape_.hidden_rows() / shape_.hidden;  // rows of up for each hidden channel
  int64_t begin, end;                                         // panels of hidden channels
  worker_.part(shape_.hidden / kPanelRows, owns_branches_ ? shape_.hidden / kPanelRows / shape_.slices : 1, begin, end);
  kernels_.product(product(ws_.up, shape_.hidden_rows(), stream_.x, shape_.channels_k, layer.up, begin * wide,
                           (end - begin) * wide));
  if (begin < end) {
    kernels_.activate(ws_.activated + begin * kPanelRows * input_size_, shape_.hidden,
                      ws_.up + begin * kPanelRows * wide, shape_.hidden_rows(), row_count_, (end - begin) * kPanelRows,
                      config.activation, config.is_gated_mlp);
  }
  lap(DecodeStage::up);
  if (!owns_branches_) meet();
  write_branch(1, ws_.activated, shape_.hidden, layer.down, shape_.slices);
}

void DecoderPass::unembed() {
  const PackedMatrix& w = weights_.unembedding;
  int64_t begin, end;
  worker_.part(w.panels(), 1, begin, end);
  PanelProduct a =
      product(ws_.logits, shape_.vocabulary, stream_.x + first_logits_row_ * shape_.channels_k * input_size_,
              shape_.channels_k, w, begin, end - begin);
  a.rows = row_count_ - first_logits_row_;
  kernels_.product(a);
}

}  // namespace taper
