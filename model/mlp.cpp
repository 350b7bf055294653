#include "model/mlp.h"

namespace taper {

Mlp::Mlp(ParameterList& parameters, const std::string& name, const ModelConfig& config)
    : activation_(config.activation), is_gated_(config.is_gated_mlp) {
  const std::string up = name + (is_gated_ ? ".gate_up" : ".up");
  const int64_t rows = config.mlp_hidden * (is_gated_ ? 2 : 1);
  up_weight_ = parameters.add_matrix(up + ".weight", {rows, config.width}, kInitialDeviation);
  if (config.has_bias) up_bias_ = parameters.add_vector(up + ".bias", rows, 0.0);
  down_weight_ =
      parameters.add_matrix(name + ".down.weight", {config.width, config.mlp_hidden}, writer_deviation(config));
  if (config.has_bias) down_bias_ = parameters.add_vector(name + ".down.bias", config.width, 0.0);
}

Tensor Mlp::forward(const Tensor& x) const {
  const Tensor hidden =
      is_gated_ ? swiglu(linear(x, up_weight_, up_bias_)) : linear(x, up_weight_, up_bias_, activation_);
  return linear(hidden, down_weight_, down_bias_);
}

}  // namespace taper
