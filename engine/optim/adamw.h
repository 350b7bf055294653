// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101; the order of operations is
// PyTorch's). For each parameter p with gradient g, at step t = 1, 2, ...:
//   g <- clip_factor g;   m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
//   p <- (1 - lr weight_decay) p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// One step counter for all parameters. A parameter to which no gradient has come stays as it is, moments included.
#pragma once

#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"

namespace taper {

struct AdamwConfig {
  double lr = 6e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

struct AdamwParameter {
  std::string name;
  Tensor master;  // f32 or f64: what is updated
  Tensor copy;    // bf16 of the same shape, rewritten with every update; or absent
  Tensor leaf;    // whose grad() is read: the master itself, or the copy
  bool decays = false;
};

class Adamw {
 public:
  // Error where two parameters share a name or their memory (a tied matrix is one parameter), or shapes disagree;
  // UsageError where the config is out of range. Writes the copies.
  Adamw(std::vector<AdamwParameter> parameters, const AdamwConfig& config);

  // One update with the gradients at hand. lr: this step's, in place of the config's.
  void step(double lr, double clip_factor = 1.0);
  void step() { step(config_.lr); }
  // The same with what only the device knows: kernels::plan_update finds the scalars, and the host reads nothing.
  void step(const Tensor& learning_rate, const Tensor& squares, const Tensor& losses, double max_norm);

  // f64 [kUpdateScalars], where the parameters are: of the last update.
  const Tensor& scalars() const { return scalars_; }
  int64_t step_count() const;
  void set_step_count(int64_t count);  // count >= 0

  // A parameter and its moments, of the master's dtype and shape. What a checkpoint holds; load it with copy_from().
  struct State {
    AdamwParameter parameter;
    Tensor m, v;
  };
  const std::vector<State>& states() const { return states_; }
  const State& state(const std::string& name) const;  // Error where there is none
  void write_copies() const;                          // after masters were loaded

  // Which tensors decay and which do not, with counts of tensors and of parameters.
  std::string summary() const;

 private:
  AdamwConfig config_;
  AdamwOptions options() const;
  void update() const;

  std::vector<State> states_;
  Tensor scalars_;
};

}  // namespace taper
