#include "engine/autograd/op.h"

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {

void Op::backward(const Saved&, const Tensors&, Grads&) const {
  fail("{}: has no backward, and an input needs a gradient", name());
}

Accumulator Grads::buffer(size_t input) {
  Target& target = targets_[input];
  if (!target.slot) return {};
  target.was_served = true;
  GradSlot& slot = *target.slot;
  const bool add = slot.is_set;
  const bool has_memory = slot.value && slot.value.shape() == target.spec.shape &&
                          slot.value.dtype() == target.spec.dtype && slot.value.has_sole_storage();
  if (!has_memory) {
    const Tensor shared = slot.value;
    slot.value = Tensor::empty(target.spec.shape, target.spec.dtype, target.device, "a gradient");
    if (add) kernels::convert(slot.value, shared);
  }
  slot.is_set = true;
  return {View(slot.value), add};
}

void Grads::pass(size_t input, const Tensor& gradient) {
  Target& target = targets_[input];
  if (!target.slot) return;
  if (target.slot->is_set) {
    kernels::add_to(buffer(input), gradient, 1.0);
  } else if (gradient.dtype() == target.spec.dtype && gradient.shape() == target.spec.shape) {
    *target.slot = {gradient.detached(), true};
  } else {
    kernels::convert(buffer(input), gradient);
  }
  target.was_served = true;
}

void require_defined(const Op& op, const Tensor& t, const char* name) {
  require(t.is_defined(), "{}: {} is missing", op.name(), name);
}

void require_shape(const Op& op, const Tensor& t, const char* name, const Shape& want) {
  require_defined(op, t, name);
  require(t.shape() == want, "{}: {} has the wrong shape; got {}, want {}", op.name(), name, to_string(t.shape()),
          to_string(want));
}

void require_dtype(const Op& op, const Tensor& t, const char* name, Dtype want) {
  require_defined(op, t, name);
  require(t.dtype() == want, "{}: {} has the wrong dtype; got {}, want {}", op.name(), name, to_string(t.dtype()),
          to_string(want));
}

void require_float(const Op& op, const Tensor& t, const char* name) {
  require_defined(op, t, name);
  require(t.dtype() != Dtype::i32, "{}: {} has the wrong dtype; got i32, want f64, f32 or bf16", op.name(), name);
}

void require_rank(const Op& op, const Tensor& t, const char* name, int least, int most) {
  require_defined(op, t, name);
  const int rank = t.shape().rank;
  require(rank >= least && rank <= most, "{}: {} has the wrong rank; got {}, want {} to {} dimensions", op.name(), name,
          to_string(t.shape()), least, most);
}

}  // namespace taper
