// y = act(x W^T + bias).   dpre = dy * act'(pre), dx = dpre W, dW = dpre^T x, dbias = the column sums of dpre.
// x [..., K], W [M, K], bias [M], y and pre [..., M].
#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct Linear : Op {
  Activation act = Activation::none;

  explicit Linear(Activation activation) : act(activation) {}
  const char* name() const override { return "linear"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    require_float(*this, x, "x");
    require_rank(*this, x, "x", 1, kMaxRank);
    require_dtype(*this, weight, "weight", x.dtype());
    require_rank(*this, weight, "weight", 2, 2);
    require(weight.dim(1) == x.dim(-1), "linear: weight has the wrong shape; got {}, want [M, {}] for x {}",
            to_string(weight.shape()), x.dim(-1), to_string(x.shape()));
    if (bias) {
      require_dtype(*this, bias, "bias", accumulation_dtype(x.dtype()));
      require_shape(*this, bias, "bias", {weight.dim(0)});
    }
    return {{x.shape().with_last(weight.dim(0)), x.dtype()}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    Tensor pre;
    if (saved.needs_backward() && act != Activation::none) {
      pre = Tensor::empty(out[0].shape(), out[0].dtype(), out[0].device(), "linear's pre-activation");
    }
    kernels::linear_fwd(out[0], pre, in[0], in[1], in[2], act);
    if (!saved.needs_backward()) return;
    saved.keep(saved.needs(1) ? in[0] : Tensor());
    saved.keep(saved.needs(0) ? in[1] : Tensor());
    saved.keep(pre);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    const Tensor &x = saved[0], &weight = saved[1], &pre = saved[2];
    Tensor dpre = dy[0];
    if (act != Activation::none) dpre = Tensor::empty(dpre.shape(), dpre.dtype(), dpre.device(), "a gradient");
    if (act != Activation::none || dx.needs(2)) {
      kernels::linear_act_bwd(dpre, dx.buffer(2), dy[0], pre, act);
    }
    if (dx.needs(0)) kernels::matmul(dx.buffer(0), dpre, weight, MatmulOptions{});
    if (dx.needs(1)) kernels::matmul(dx.buffer(1), dpre, x, MatmulOptions{true, false});
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation act) {
  return apply(std::make_shared<Linear>(act), {x, weight, bias})[0];
}

// --- samples ---
namespace {

Tensors reference(const Tensors& in, Activation act) {
  const Tensor &x = in[0], &weight = in[1], &bias = in[2];
  Tensor y = matmul(reshape(x, {x.shape().rows(), x.dim(-1)}), weight, {false, true});
  if (bias) {
    const Tensor row = bias.dtype() == x.dtype() ? bias : bias.cast(x.dtype());
    y = add(y, reshape(row, {1, row.dim(0)}));
  }
  if (act == Activation::gelu_tanh) y = unary(y, Unary::gelu_tanh);
  if (act == Activation::gelu_erf) y = unary(y, Unary::gelu_erf);
  if (act == Activation::relu) y = unary(y, Unary::relu);
  return {reshape(y, x.shape().with_last(weight.dim(0)))};
}

Sample sample(const char* label, const Shape& x, int64_t outputs, bool has_bias, Activation act) {
  Sample s;
  s.label = label;
  s.op = [act](Dtype) { return std::make_shared<Linear>(act); };
  SampleInput bias{{outputs}};
  bias.follows_dtype = false;
  if (!has_bias) {
    bias.is_differentiated = false;
    bias.make = [](Dtype) { return Tensor(); };
  }
  s.inputs = {SampleInput{x}, SampleInput{{outputs, x.last()}}, bias};
  s.reference = [act](const Tensors& in) { return reference(in, act); };
  s.tolerance.bf16 = 3e-2;  // the activation reads a rounded argument
  return s;
}

std::vector<Sample> samples() {
  return {
      sample("plain", {4, 16}, 32, false, Activation::none),
      sample("bias", {2, 3, 8}, 16, true, Activation::none),
      sample("odd sizes", {7, 5}, 3, true, Activation::none),
      sample("one row", {1, 33}, 65, false, Activation::none),
      sample("one column", {3, 1}, 1, true, Activation::gelu_tanh),
      sample("rank 1", {6}, 4, true, Activation::none),
      sample("rank 4", {2, 1, 3, 4}, 5, false, Activation::gelu_tanh),
      sample("gelu_tanh", {5, 12}, 20, true, Activation::gelu_tanh),
      sample("gelu_erf", {5, 12}, 20, true, Activation::gelu_erf),
      sample("gelu_erf without bias", {3, 7}, 9, false, Activation::gelu_erf),
      sample("relu", {5, 12}, 20, true, Activation::relu),
      sample("relu without bias", {4, 9}, 11, false, Activation::relu),
      sample("longer than a tile in each direction", {67, 70}, 83, true, Activation::gelu_tanh),
  };
}

std::vector<BadSample> bad_samples() {
  const auto zeros = [](const Shape& shape, Dtype dtype = Dtype::f32) { return Tensor::zeros(shape, dtype); };
  return {
      {"want [M, 4] for x [2, 4]",
       [=] {
         linear(zeros({2, 4}), zeros({3, 5}));
       }},
      {"weight has the wrong dtype",
       [=] {
         linear(zeros({2, 4}), zeros({3, 4}, Dtype::bf16));
       }},
      {"weight has the wrong rank",
       [=] {
         linear(zeros({2, 4}), zeros({3, 2, 4}));
       }},
      {"weight is missing",
       [=] {
         linear(zeros({2, 4}), Tensor());
       }},
      {"x is missing",
       [=] {
         linear(Tensor(), zeros({3, 4}));
       }},
      {"x has the wrong dtype",
       [=] {
         linear(zeros({2, 4}, Dtype::i32), zeros({3, 4}));
       }},
      {"bias has the wrong shape",
       [=] {
         linear(zeros({2, 4}), zeros({3, 4}), zeros({4}));
       }},
      {"bias has the wrong dtype",
       [=] {
         linear(zeros({2, 4}), zeros({3, 4}), zeros({3}, Dtype::bf16));
       }},
  };
}

}  // namespace

// The libraries of products split sums by the number of threads.
std::vector<OpInfo> linear_ops() { return {{"linear", samples, bad_samples, false}}; }

}  // namespace taper
