// Causal self-attention of one block: one product for q, k and v, rotary positions where the model has them, the
// attention itself, and the product that writes back into the residual stream.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "model/config.h"
#include "model/parameter.h"

namespace taper {

AttentionOptions attention_options(const ModelConfig& config);

// theta^(-2 i / D) for i < D/2, angles a position, after the configuration's scaling. linear: all divided by the
// factor. llama3: a wave longer than the original context / low is divided, one shorter than original / high is not,
// and between them the two mix linearly in original / wavelength (Llama 3.1; transformers, modeling_rope_utils.py).
std::vector<double> rotary_frequencies(const ModelConfig& config);

// cos and sin of position * frequency, each [context, D/2]; undefined for learned positions.
struct RotaryTables {
  Tensor cos, sin;
};
RotaryTables make_rotary_tables(const ModelConfig& config, Precision precision);

class Attention {
 public:
  // qkv.weight [(H + 2 Hkv) D, C]: rows of q, then k, then v, heads contiguous; out.weight [C, H D]; biases with
  // has_bias.
  Attention(ParameterList& parameters, const std::string& name, const ModelConfig& config, const RotaryTables& rotary);

  // x [B, T, C] -> [B, T, C]; v reads x_of_v where that is present.
  Tensor forward(const Tensor& x, const Tensor& x_of_v = {}) const;

 private:
  Tensor in_columns(const Tensor& qkv, int64_t begin, int64_t end) const;

  AttentionOptions options_;
  RotaryTables rotary_;
  Tensor qkv_weight_, qkv_bias_, out_weight_, out_bias_;
};

}  // namespace taper
