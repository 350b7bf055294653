#include "infer/decode_weights.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "infer/decode_norm.h"

namespace taper {
namespace {

// The greatest power of two up to `most` for which `fits` holds; it always does for 1.
template <class Fits>
int greatest_power(int most, Fits&& fits) {
  int count = most;
  while (count > 1 && !fits(count)) count /= 2;
  return count;
}

const float* values_of(const Transformer& model, const std::string& name) {
  return model.parameter(name).master.data<float>();
}

}  // namespace

DecodeShape::DecodeShape(const ModelConfig& config_, WeightType weights_) : config(config_), weights(weights_) {
  const int64_t column_step = weights == WeightType::bf16 ? 2 : 1;
  groups = greatest_power(kMaxSlices, [&](int count) {
    return config.kv_heads % count == 0 && config.heads / count * config.head_size % column_step == 0;
  });
  slices = greatest_power(kMaxSlices, [&](int count) { return config.mlp_hidden % (count * kPanelRows) == 0; });
  channels = round_up(config.width, kPanelRows);
  channels_k = round_up(config.width, column_step);
  attention_k = round_up(config.heads * config.head_size, column_step);
  group_rows = round_up((group_heads() + 2 * group_kv_heads()) * config.head_size, kPanelRows);
  hidden = round_up(config.mlp_hidden, kPanelRows);
  vocabulary = round_up(config.vocab_size, kPanelRows);
}

// Counts the memory on a first pass and fills it on a second.
struct DecodeWeights::Packer {
  DecodeWeights& weights;
  bool is_counting = true;
  int64_t used = 0;

  // One matrix of `rows` packed rows from pieces of `source` [*, k]: piece (to, from, count) packs source rows
  // [from, from + count) as rows [to, to + count); a piece starts on a whole panel or within one that only it and its
  // neighbours fill.
  struct Piece {
    int64_t to, from, count;
  };
  PackedMatrix matrix(const float* source, const float* bias, int64_t rows, int64_t k, int64_t k_padded,
                      const std::vector<Piece>& pieces) {
    PackedMatrix packed;
    packed.rows = rows;
    packed.k = k_padded;
    const int64_t begin = used;
    used += round_up(rows * k_padded * size_of(weights.kernels_.weight_type), kCacheLine);
    if (is_counting) return packed;
    packed.data = weights.memory_.data() + begin;
    fill(packed, source, k, pieces);
    if (bias) packed.bias = permuted(bias, rows, pieces);
    return packed;
  }

  const float* permuted(const float* values, int64_t rows, const std::vector<Piece>& pieces) {
    std::vector<float> result(static_cast<size_t>(rows), 0.0f);
    for (const Piece& piece : pieces) std::copy_n(values + piece.from, piece.count, result.begin() + piece.to);
    return weights.keep(std::move(result));
  }

 private:
  void fill(PackedMatrix& packed, const float* source, int64_t k, const std::vector<Piece>& pieces) {
    const WeightType type = weights.kernels_.weight_type;
    std::vector<float> scales(static_cast<size_t>(packed.rows));
    std::vector<int64_t> origin(static_cast<size_t>(packed.rows), -1);
    for (const Piece& piece : pieces) {
      for (int64_t i = 0; i < piece.count; ++i) origin[static_cast<size_t>(piece.to + i)] = piece.from + i;
    }
    parallel_for(packed.panels(), 4, [&](int64_t first, int64_t last) {
      std::array<const float*, kPanelRows> rows;
      for (int64_t panel = first; panel < last; ++panel) {
        for (int64_t i = 0; i < kPanelRows; ++i) {
          const int64_t row = origin[static_cast<size_t>(panel * kPanelRows + i)];
          rows[static_cast<size_t>(i)] = row < 0 ? nullptr : source + row * k;
        }
        weights.kernels_.pack(packed.data + panel * kPanelRows * packed.k * size_of(type),
                              scales.data() + panel * kPanelRows, packed.k, rows.data(), k);
      }
    });
    if (type == WeightType::int8) packed.scale = weights.keep(std::move(scales));
  }
};

const float* DecodeWeights::keep(std::vector<float> values) {
  vectors_.push_back(std::move(values));
  return vectors_.back().data();
}

DecodeWeights::DecodeWeights(const Transformer& model, Plan plan, WeightType weights)
    : shape_(model.config(), weights), kernels_(decode_kernels(weights)) {
  const ModelConfig& config = model.config();
  check_decodable(model, plan);
  Packer counter{*this};
  pack_all(model, plan, counter);
  memory_ = HugeMemory(counter.used, "decode: packed weights");
  Packer packer{*this, false};
  pack_all(model, plan, packer);
  wte_ = model.parameter("wte.weight").master;
  if (config.positions == Positions::learned) wpe_ = model.parameter("wpe.weight").master;
  rotary_ = make_rotary_tables(config, Precision::f32);
}

void DecodeWeights::pack_all(const Transformer& model, Plan plan, Packer& packer) {
  const ModelConfig& config = model.config();
  const DecodeShape& s = shape_;
  const int64_t width = config.width, inner = config.heads * config.head_size, d = config.head_size;
  using Pieces = std::vector<Packer::Piece>;

  Pieces qkv;
  for (int64_t g = 0; g < s.groups; ++g) {
    const int64_t q = s.group_heads() * d, kv = s.group_kv_heads() * d, to = g * s.group_rows;
    qkv.push_back({to, g * q, q});
    qkv.push_back({to + q, inner + g * kv, kv});
    qkv.push_back({to + q + kv, inner + config.kv_heads * d + g * kv, kv});
  }
  Pieces up{{0, 0, config.mlp_hidden}};
  if (config.is_gated_mlp) {
    up.clear();
    for (int64_t i = 0; i < config.mlp_hidden; i += kPanelRows) {
      const int64_t count = std::min(kPanelRows, config.mlp_hidden - i);
      up.push_back({2 * i, i, count});
      up.push_back({2 * i + kPanelRows, config.mlp_hidden + i, count});
    }
  }
  const Pieces residual{{0, 0, width}};
  const auto get = [&](const std::string& name) { return values_of(model, name); };
  const auto bias = [&](const std::string& name) { return config.has_bias ? values_of(model, name) : nullptr; };

  const auto norm = [&](const std::string& name, NormSite site) {
    return decode_norm(model, name, site, plan, [&](std::vector<float> values) { return keep(std::move(values)); });
  };

  layers.assign(static_cast<size_t>(config.layers), {});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("h.{}", i);
    const std::string up_name = name + (config.is_gated_mlp ? ".mlp.gate_up" : ".mlp.up");
    LayerWeights& layer = layers[static_cast<size_t>(i)];
    layer.qkv = packer.matrix(get(name + ".attn.qkv.weight"), bias(name + ".attn.qkv.bias"), s.groups * s.group_rows,
                              width, s.channels_k, qkv);
    layer.out = packer.matrix(get(name + ".attn.out.weight"), bias(name + ".attn.out.bias"), s.channels, inner,
                              s.attention_k, residual);
    layer.up =
        packer.matrix(get(up_name + ".weight"), bias(up_name + ".bias"), s.hidden_rows(), width, s.channels_k, up);
    layer.down = packer.matrix(get(name + ".mlp.down.weight"), bias(name + ".mlp.down.bias"), s.channels,
                               config.mlp_hidden, s.hidden, residual);
    if (packer.is_counting) continue;
    layer.norm1 = norm(name + ".norm1", config.block_norms);
    layer.norm2 = norm(name + ".norm2", config.block_norms);
  }
  const std::string head = config.is_tied ? "wte.weight" : "lm_head.weight";
  unembedding = packer.matrix(get(head), config.has_head_bias ? get("lm_head.bias") : nullptr, s.vocabulary, width,
                              s.channels_k, {{0, 0, config.vocab_size}});
  if (!packer.is_counting) final_norm = norm("norm_f", config.final_norm);
}

void DecodeWeights::embed(float* h, int32_t token, int64_t position) const {
  const int64_t width = shape_.config.width;
  const float* word = wte_.data<float>() + token * width;
  const float* place = wpe_ ? wpe_.data<float>() + position * width : nullptr;
  if (shape_.weights == WeightType::int8 && shape_.config.is_tied) {
    const auto* column = reinterpret_cast<const int8_t*>(unembedding.data) + token / kPanelRows * kPanelRows * width +
                         token % kPanelRows;
    const float scale = unembedding.scale[token];
    for (int64_t c = 0; c < width; ++c)
      h[c] = scale * static_cast<float>(column[c * kPanelRows]) + (place ? place[c] : 0.0f);
    return;
  }
  if (shape_.weights == WeightType::bf16) {
    for (int64_t c = 0; c < width; ++c) h[c] = float(bf16(word[c])) + (place ? float(bf16(place[c])) : 0.0f);
    return;
  }
  for (int64_t c = 0; c < width; ++c) h[c] = word[c] + (place ? place[c] : 0.0f);
}

const float* DecodeWeights::cos(int64_t position) const {
  return rotary_.cos ? rotary_.cos.data<float>() + position * (shape_.config.head_size / 2) : nullptr;
}

const float* DecodeWeights::sin(int64_t position) const {
  return rotary_.sin ? rotary_.sin.data<float>() + position * (shape_.config.head_size / 2) : nullptr;
}

}  // namespace taper
