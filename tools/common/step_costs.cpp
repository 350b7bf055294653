#include "tools/common/step_costs.h"

#include <algorithm>

namespace taper {
namespace {

constexpr int64_t kWide = 4;  // bytes of the residual stream, of gradients of parameters, of masters and moments

class Costs {
 public:
  Costs(const ModelConfig& config, int64_t batch, Dtype product, double gate)
      : config_(config), rows_(batch * config.context), narrow_(size_of(product)), gate_(gate) {}

  std::vector<KernelCost> all() {
    add_norms();
    add_products();
    add_attention();
    add_cross_entropy();
    add_embedding();
    add_update();
    add_rest();
    return std::move(costs_);
  }

 private:
  void add(std::string name, int64_t calls, int64_t bytes, double flops, int64_t launches) {
    costs_.push_back({std::move(name), calls, bytes, flops, launches});
  }

  void add_norms() {
    const int64_t calls = 2 * config_.layers + 1, values = rows_ * config_.width;
    const int64_t statistics = rows_ * kWide * ((gate_ > 0 ? 1 : 0) + (config_.norm == NormKind::layer ? 1 : 0));
    const bool calibrates = gate_ >= 1;
    add("taper_norm_fwd", calls, values * 2 * (kWide + narrow_) + statistics, 0, calibrates ? 2 : 1);
    add("taper_norm_bwd", calls, values * (3 * kWide + 2 * narrow_) + statistics, 0, 2);
  }

  // Forward, and the two products backward.
  void add_product(const std::string& name, int64_t calls, int64_t outputs, int64_t inputs, bool is_activated) {
    const int64_t x = rows_ * inputs * narrow_, y = rows_ * outputs * narrow_, w = outputs * inputs * narrow_;
    const double flops = 2.0 * double(rows_) * double(outputs) * double(inputs);
    const int64_t epilogue = is_activated || (config_.has_bias && narrow_ != 2) ? 1 : 0;
    add(name, calls, x + w + (is_activated ? 2 : 1) * y, flops, 1 + epilogue);
    if (is_activated) add(name + ", act bwd", calls, 3 * y, 0, config_.has_bias ? 2 : 1);
    if (!is_activated && config_.has_bias) add(name + ", bias bwd", calls, y, 0, 2);
    add(name + ", dx", calls, x + w + y, flops, 1);
    add(name + ", dw", calls, x + y + outputs * inputs * kWide, flops, 1);
  }

  void add_products() {
    const int64_t inner = config_.heads * config_.head_size, kv = config_.kv_heads * config_.head_size;
    const bool is_gated = config_.is_gated_mlp;
    add_product("qkv", config_.layers, inner + 2 * kv, config_.width, false);
    add_product("out", config_.layers, config_.width, inner, false);
    add_product("up", config_.layers, config_.mlp_hidden * (is_gated ? 2 : 1), config_.width, !is_gated);
    add_product("down", config_.layers, config_.width, config_.mlp_hidden, false);
    const int64_t hidden = rows_ * config_.mlp_hidden * narrow_;
    if (is_gated) add("swiglu_fwd", config_.layers, 3 * hidden, 0, 1);
    if (is_gated) add("swiglu_bwd", config_.layers, 5 * hidden, 0, 1);
  }

  void add_attention() {
    const int64_t inner = config_.heads * config_.head_size, kv = config_.kv_heads * config_.head_size;
    const int64_t qkv = rows_ * (inner + 2 * kv) * narrow_, y = rows_ * inner * narrow_;
    const int64_t lse = rows_ * config_.heads * kWide;
    // Of the lower triangle: scores and values forward, five such products backward.
    const double product = double(rows_) * double(config_.context) * double(inner);
    if (config_.positions == Positions::rotary) add("rotary", 2 * config_.layers, 2 * qkv, 0, 1);
    add("attention_fwd", config_.layers, qkv + y + lse, 2 * product, 1);
    add("attention_bwd", config_.layers, 2 * (qkv + y) + lse, 5 * product, 3);
  }

  void add_cross_entropy() {
    const int64_t values = rows_ * config_.width, weights = config_.vocab_size * config_.width;
    // The rows of engine/kernels/cuda/cross_entropy.cu, whose blocks take four launches each.
    const int64_t stride = (config_.vocab_size + 7) / 8 * 8;
    const int64_t fitting = (int64_t{256} << 20) / (stride * kWide) / 128 * 128;
    const int64_t block = std::clamp<int64_t>(fitting, 128, 4096), blocks = (rows_ + block - 1) / block;
    add("unembed_cross_entropy", 1, values * 2 * narrow_ + weights * (narrow_ + kWide),
        6.0 * double(rows_) * double(config_.vocab_size) * double(config_.width), 4 * blocks + 1);
  }

  void add_embedding() {
    const int64_t values = rows_ * config_.width, table = config_.vocab_size * config_.width;
    const int64_t positions = config_.positions == Positions::learned ? config_.context * config_.width : 0;
    add("embedding_fwd", 1, rows_ * 4 + values * (narrow_ + kWide) + positions * narrow_, 0, 1);
    add("embedding_bwd", 1, rows_ * 4 + values * kWide + (2 * table + positions) * kWide, 0,
        (positions > 0 ? 3 : 1) + (config_.is_tied ? 0 : 1));
  }

  int64_t tensors() const {
    const bool has_shift = config_.norm == NormKind::layer;
    const int64_t norms = (config_.block_norms != NormSite::removed ? 2 * config_.layers : 0) + 1;
    const int64_t tapered = (config_.block_norms == NormSite::tapered ? 2 * config_.layers : 0) +
                            (config_.final_norm == NormSite::tapered ? 1 : 0);
    return 1 + (config_.positions == Positions::learned ? 1 : 0) + (config_.is_tied ? 0 : 1) +
           (norms + tapered) * (has_shift ? 2 : 1) + config_.layers * (config_.has_bias ? 8 : 4);
  }

  void add_update() {
    const int64_t parameters = parameter_count(config_), each = parameters / tensors();
    add("sum_squares", tensors(), each * kWide, 0, 2);
    add("adamw", tensors(), each * (7 * kWide + (narrow_ < kWide ? narrow_ : 0)), 0, 1);
  }

  // The statistics of the pre-logit stream, the anchor, and the small copies and fills of the record.
  void add_rest() {
    const int64_t values = rows_ * config_.width * kWide;
    const bool is_anchored = gate_ < 1;
    add("scales and radial parts", 1, values * (is_anchored ? 9 : 3), 0, is_anchored ? 10 : 4);
    const int64_t calibration = gate_ >= 1 ? 2 * config_.layers + 1 : 0;
    add("fills and copies", 1, 0, 0, (is_anchored ? 13 : 10) + calibration);
  }

  const ModelConfig& config_;
  const int64_t rows_, narrow_;
  const double gate_;
  std::vector<KernelCost> costs_;
};

}  // namespace

std::vector<KernelCost> step_costs(const ModelConfig& config, int64_t batch, Dtype product, double gate) {
  return Costs(config, batch, product, gate).all();
}

KernelCost token_cost(const ModelConfig& config, int64_t context, Dtype product) {
  const int64_t positions = config.positions == Positions::learned ? config.context * config.width : 0;
  const int64_t weights = parameter_count(config) - positions;
  const int64_t cached = 2 * config.layers * config.kv_heads * config.head_size * context;
  const double attention = 4.0 * double(config.layers * config.heads * config.head_size * context);
  // Five a layer; the embedding, the logits, the choice.
  const int64_t launches = 5 * config.layers + 3;
  return {"token", 1, (weights + cached) * size_of(product), 2.0 * double(weights) + attention, launches};
}

double least_seconds(const KernelCost& cost, const Card& card, Dtype product) {
  const double rate = product == Dtype::bf16 ? card.bf16_flops_per_s : card.f32_flops_per_s;
  return std::max(double(cost.bytes) / card.bytes_per_s, cost.flops / rate);
}

}  // namespace taper
