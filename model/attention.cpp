#include "model/attention.h"

#include <cmath>

namespace taper {

AttentionOptions attention_options(const ModelConfig& config) {
  AttentionOptions options;
  options.heads = config.heads;
  options.kv_heads = config.kv_heads;
  options.head_size = config.head_size;
  options.scale = config.attention_scale != 0 ? config.attention_scale : 1.0 / std::sqrt(double(config.head_size));
  return options;
}

RotaryTables make_rotary_tables(const ModelConfig& config, Precision precision) {
  if (config.positions != Positions::rotary) return {};
  const int64_t half = config.head_size / 2;
  std::vector<double> cos, sin;
  for (int64_t position = 0; position < config.context; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(position) * std::pow(config.rope_theta, -2.0 * double(i) / double(config.head_size));
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  const Shape shape{config.context, half};
  const Dtype dtype = master_dtype(precision);
  return {Tensor::from(cos, shape).cast(dtype), Tensor::from(sin, shape).cast(dtype)};
}

Attention::Attention(ParameterList& parameters, const std::string& name, const ModelConfig& config,
                     const RotaryTables& rotary)
    : options_(attention_options(config)), rotary_(rotary) {
  const int64_t inner = config.heads * config.head_size;
  const int64_t rows = inner + 2 * config.kv_heads * config.head_size;
  qkv_weight_ = parameters.add_matrix(name + ".qkv.weight", {rows, config.width}, kInitialDeviation);
  if (config.has_bias) qkv_bias_ = parameters.add_vector(name + ".qkv.bias", rows, 0.0);
  out_weight_ = parameters.add_matrix(name + ".out.weight", {config.width, inner}, writer_deviation(config));
  if (config.has_bias) out_bias_ = parameters.add_vector(name + ".out.bias", config.width, 0.0);
}

Tensor Attention::forward(const Tensor& x) const {
  Tensor qkv = linear(x, qkv_weight_, qkv_bias_);
  if (rotary_.cos) qkv = rotary(qkv, rotary_.cos, rotary_.sin, options_);
  return linear(causal_attention(qkv, options_), out_weight_, out_bias_);
}

}  // namespace taper
