// What an operation is. One struct, forward and backward adjacent:
//
//   struct Scale : Op { double factor; name(); infer(); forward(); backward(); };
//
// infer() checks shapes and dtypes and throws an Error that names the op; forward() finds its outputs allocated and
// writes them; backward() puts a gradient into every input that needs one. Each file in engine/ops also lists samples
// of its ops, good and bad, from which tests/test_ops.cpp makes its checks (engine/ops/registry.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/core/view.h"

namespace taper {

struct Spec {
  Shape shape;
  Dtype dtype;
};

// What forward() leaves for backward(). Kept tensors are outside the graph, so that nothing refers to itself.
class Saved {
 public:
  Saved(bool needs_backward, std::vector<bool> needs) : needs_backward_(needs_backward), needs_(std::move(needs)) {}

  bool needs_backward() const { return needs_backward_; }   // false: nothing kept will be read
  bool needs(size_t input) const { return needs_[input]; }  // this input's gradient will be asked for
  void keep(const Tensor& tensor) { tensors_.push_back(tensor ? tensor.detached() : tensor); }
  const Tensor& operator[](size_t i) const { return tensors_[i]; }  // in the order of keep()
  void drop() { tensors_.clear(); }

 private:
  bool needs_backward_;
  std::vector<bool> needs_;
  Tensors tensors_;
};

// A gradient on its way. A leaf's is f32 for bf16 leaves; otherwise it has the tensor's own dtype.
struct GradSlot {
  Tensor value;
  bool is_set = false;
};

// The destinations of one backward() call, by input.
class Grads {
 public:
  struct Target {
    GradSlot* slot = nullptr;  // null: this input needs no gradient
    Spec spec{};
    Device device = Device::cpu;
    bool was_served = false;
  };
  explicit Grads(std::vector<Target> targets) : targets_(std::move(targets)) {}

  bool needs(size_t input) const { return targets_[input].slot != nullptr; }
  // Memory to write (first gradient to arrive) or to add to. Absent when the input needs no gradient.
  Accumulator buffer(size_t input);
  // Hands a finished gradient over, without a copy where it is the first. It may share memory with dy.
  void pass(size_t input, const Tensor& gradient);

  const std::vector<Target>& targets() const { return targets_; }

 private:
  std::vector<Target> targets_;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual const char* name() const = 0;
  virtual std::vector<Spec> infer(const Tensors& in) const = 0;
  virtual void forward(const Tensors& in, Tensors& out, Saved& saved) const = 0;
  // dy[i] is undefined where no gradient reached output i. Default: throws, naming the op.
  virtual void backward(const Saved& saved, const Tensors& dy, Grads& dx) const;
};

// Checks for infer(): Error `op: name is wrong; got ..., want ...`.
void require_defined(const Op& op, const Tensor& t, const char* name);
void require_shape(const Op& op, const Tensor& t, const char* name, const Shape& want);
void require_dtype(const Op& op, const Tensor& t, const char* name, Dtype want);
void require_float(const Op& op, const Tensor& t, const char* name);  // f64, f32 or bf16
void require_rank(const Op& op, const Tensor& t, const char* name, int least, int most);

// f64 for f64, else f32: the dtype of statistics, parameters of norms, sums.
inline Dtype accumulation_dtype(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

}  // namespace taper
