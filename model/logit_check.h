// Whether another model is the same function: the logits of both at every position of some windows of random ids.
#pragma once

#include <cstdint>
#include <vector>

#include "model/hf_import.h"
#include "model/transformer.h"

namespace taper {

// How far another model's logits are from the model's, in the window in which that is the greatest part of its logits.
struct LogitDifference {
  double most = 0;      // of a logit; NaN where one of the other model is
  double greatest = 1;  // magnitude of the model's logits in that window, 1 where all are below

  double allowed(double tolerance) const { return tolerance * greatest; }
  bool is_within(double tolerance) const { return most <= allowed(tolerance); }
};

class LogitCheck {
 public:
  // Computes the logits of `model`, at the gate of its configuration. A window in which they are not finite, which ids
  // that are no text can bring about in a model without norms, says nothing of another model and is left out; `say`
  // hears of it. Error where that leaves none, or a parameter is not finite.
  explicit LogitCheck(const Transformer& model, const Say& say = {});

  const std::vector<std::vector<int32_t>>& windows() const { return windows_; }  // those that are compared

  LogitDifference difference(const Transformer& other) const;

 private:
  std::vector<std::vector<int32_t>> windows_;
  std::vector<Tensor> logits_;  // of each window
};

}  // namespace taper
