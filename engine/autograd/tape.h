// Reverse-mode automatic differentiation. apply() runs an op and, where an input requires a gradient, hangs a node on
// its outputs; backward() walks the nodes from the newest to the oldest. A node is younger than all it reads, so that
// order is a topological one, and each node's memory goes as soon as it has been passed.
#pragma once

#include <memory>

#include "engine/autograd/op.h"

namespace taper {

// Runs the op: infer(), allocation of the outputs, forward().
Tensors apply(std::shared_ptr<const Op> op, const Tensors& in);

// Gradients of <root, cotangent> into the grad() of every leaf that root depends on. Without a cotangent root must have
// one element, and the cotangent is 1. A graph can be walked once.
void backward(const Tensor& root, const Tensor& cotangent = {});
// The same of sum <root_i, cotangent_i>, in one walk.
void backward(const Tensors& roots, const Tensors& cotangents);

// While one lives, apply() on this thread records nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

bool is_grad_enabled();

}  // namespace taper
