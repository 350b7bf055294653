#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "engine/core/parallel.h"

namespace taper {

AttentionOptions attention_options(const ModelConfig& config) {
  AttentionOptions options;
  options.heads = config.heads;
  options.kv_heads = config.kv_heads;
  options.head_size = config.head_size;
  options.scale = config.attention_scale != 0 ? config.attention_scale : 1.0 / std::sqrt(double(config.head_size));
  return options;
}

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  constexpr double kTurn = 6.283185307179586;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_size / 2; ++i) {
    const double frequency = std::pow(config.rope_theta, -2.0 * double(i) / double(config.head_size));
    const double divided = frequency / config.rope_factor;
    if (config.rope_scaling == RopeScaling::none) {
      frequencies.push_back(frequency);
    } else if (config.rope_scaling == RopeScaling::linear) {
      frequencies.push_back(divided);
    } else {
      const double low = config.rope_low_frequency_factor, high = config.rope_high_frequency_factor;
      const double waves = double(config.rope_original_context) * frequency / kTurn;
      const double kept = std::clamp((waves - low) / (high - low), 0.0, 1.0);
      frequencies.push_back(kept * frequency + (1 - kept) * divided);
    }
  }
  return frequencies;
}

RotaryTables make_rotary_tables(const ModelConfig& config, Precision precision) {
  if (config.positions != Positions::rotary) return {};
  const std::vector<double> frequencies = rotary_frequencies(config);
  const int64_t half = config.head_size / 2;
  const Shape shape{config.context, half};
  const Dtype dtype = master_dtype(precision);
  const RotaryTables tables{Tensor::empty(shape, dtype, Device::cpu, "rotary cosines"),
                            Tensor::empty(shape, dtype, Device::cpu, "rotary sines")};
  const auto fill = [&](auto* cos, auto* sin) {
    parallel_for(config.context, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * half; i < end * half; ++i) {
        const double angle = double(i / half) * frequencies[size_t(i % half)];
        cos[i] = static_cast<std::remove_reference_t<decltype(*cos)>>(std::cos(angle));
        sin[i] = static_cast<std::remove_reference_t<decltype(*sin)>>(std::sin(angle));
      }
    });
  };
  if (dtype == Dtype::f64) {
    fill(tables.cos.data<double>(), tables.sin.data<double>());
  } else {
    fill(tables.cos.data<float>(), tables.sin.data<float>());
  }
  return tables;
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

// qkv with zeros outside the columns [begin, end).
Tensor Attention::in_columns(const Tensor& qkv, int64_t begin, int64_t end) const {
  std::vector<double> mask(static_cast<size_t>(qkv.dim(-1)));
  std::fill(mask.begin() + begin, mask.begin() + end, 1.0);
  return multiply(qkv, Tensor::from(mask, {1, 1, qkv.dim(-1)}).cast(qkv.dtype()).to(qkv.device()));
}

Tensor Attention::forward(const Tensor& x, const Tensor& x_of_v) const {
  Tensor qkv = linear(x, qkv_weight_, qkv_bias_);
  if (x_of_v) {
    const int64_t end = qkv.dim(-1), v = end - options_.kv_heads * options_.head_size;
    qkv = add(in_columns(qkv, 0, v), in_columns(linear(x_of_v, qkv_weight_, qkv_bias_), v, end));
  }
  if (rotary_.cos) qkv = rotary(qkv, rotary_.cos, rotary_.sin, options_);
  return linear(causal_attention(qkv, options_), out_weight_, out_bias_);
}

}  // namespace taper
