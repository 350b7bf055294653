// Whether another model is the same function: the logits of both at every position of some windows of random ids.
#pragma once

#include <cstdint>
#include <vector>

#include "model/hf_import.h"
#include "model/transformer.h"

namespace taper {

class LogitCheck {
 public:
  // Computes the logits of `model`, at the gate of its configuration. A window in which they are not finite, which ids
  // that are no text can bring about in a model without norms, says nothing of another model and is left out; `say`
  // hears of it. Error where that leaves none.
  explicit LogitCheck(const Transformer& model, const Say& say = {});

  const std::vector<std::vector<int32_t>>& windows() const { return windows_; }  // those that are compared
  double greatest_logit() const { return greatest_; }                            // magnitude, 1 where all are below

  // Greatest difference of a logit; NaN where one of `other` is.
  double difference(const Transformer& other) const;

 private:
  std::vector<std::vector<int32_t>> windows_;
  std::vector<Tensor> logits_;  // of each window
  double greatest_ = 1;
};

}  // namespace taper
