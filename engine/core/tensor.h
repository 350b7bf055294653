// A dense row-major array on one device, with shared ownership: copying a Tensor copies a handle. Autograd hangs on the
// same type: an opaque gradient function says how the tensor came about (engine/autograd/tape.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/shape.h"
#include "engine/core/view.h"

namespace taper {

class GradNode;  // engine/autograd/tape.h

class Tensor {
 public:
  Tensor() = default;  // undefined: an absent optional argument

  // `what` names the tensor where memory runs out.
  static Tensor empty(const Shape& shape, Dtype dtype, Device device = Device::cpu, const char* what = "a tensor");
  static Tensor zeros(const Shape& shape, Dtype dtype, Device device = Device::cpu, const char* what = "a tensor");
  static Tensor full(const Shape& shape, double value, Dtype dtype, Device device = Device::cpu);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);  // sizes must agree

  bool is_defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return is_defined(); }

  const Shape& shape() const;
  Dtype dtype() const;
  Device device() const;
  int64_t dim(int i) const { return shape()[i]; }
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * size_of(dtype()); }

  void* raw() const;
  template <class T>
  T* data() const;  // Error where the memory is not the host's, or the element type not T

  operator View() const;  // undefined converts to an absent view
  operator ConstView() const { return View(*this); }

  // These share storage; the result is outside the graph.
  Tensor reshaped(const Shape& shape) const;      // same number of elements
  Tensor rows(int64_t begin, int64_t end) const;  // along the first dimension
  Tensor detached() const;

  // These copy; the result is outside the graph.
  Tensor clone() const;
  Tensor cast(Dtype dtype) const;
  Tensor to(Device device) const;              // the tensor itself where it is there already
  void copy_from(const Tensor& source) const;  // same shape; casts, and crosses devices
  double item() const;                         // of a tensor of one element
  std::vector<double> to_doubles() const;

  // Autograd. A leaf that requires a gradient collects it in grad(): in f32 for bf16 leaves, else in its own dtype.
  Tensor& set_requires_grad(bool requires_grad = true);
  bool requires_grad() const;                      // a leaf that asks for it, or computed from one
  Tensor grad() const;                             // undefined until a backward pass has written it
  void zero_grad() const;                          // keeps the memory: the next backward pass overwrites it
  void drop_grad() const;                          // gives the memory back as well
  void set_retain_grad(bool retain = true) const;  // keep the gradient of a tensor that is no leaf

  // From now on this tensor is in the memory of `source`, of its shape and dtype: every handle of it follows, and its
  // gradient is dropped. Leaves only. How parameters move to another device.
  void take_memory_of(const Tensor& source) const;

  bool shares_storage(const Tensor& other) const;
  bool has_sole_storage() const;  // no other tensor uses its memory

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

using Tensors = std::vector<Tensor>;

// What engine/autograd keeps with a tensor; others use the members above.
struct Tensor::Impl {
  std::shared_ptr<void> storage;  // the whole block
  char* data = nullptr;           // first element, inside the block
  Shape shape;
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;

  bool is_leaf_with_grad = false;
  bool retains_grad = false;
  Tensor grad;
  bool grad_is_set = false;  // false: grad's memory is kept, its content is stale
  std::shared_ptr<GradNode> node;
  int output_index = 0;
};

std::string describe(const Tensor& tensor);  // "f32 [2, 3]" for messages

}  // namespace taper
