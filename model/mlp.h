// The perceptron of one block: down(act(up(x))), or gated (SwiGLU): down(silu(gate(x)) * up(x)).
#pragma once

#include <string>

#include "engine/ops/ops.h"
#include "model/config.h"
#include "model/parameter.h"

namespace taper {

class Mlp {
 public:
  // up.weight [F, C], down.weight [C, F]; biases with has_bias. A gated one holds gate and up as one matrix
  // gate_up.weight [2F, C], the rows of gate first, so that both are one product; files hold gate.weight and up.weight.
  Mlp(ParameterList& parameters, const std::string& name, const ModelConfig& config);

  Tensor forward(const Tensor& x) const;  // [B, T, C] -> [B, T, C]

 private:
  Activation activation_;
  bool is_gated_;
  Tensor up_weight_, up_bias_, down_weight_, down_bias_;
};

}  // namespace taper
