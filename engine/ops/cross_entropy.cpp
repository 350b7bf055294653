// loss = factor * sum over rows of (logsumexp(l) - l[target]), l = x W^T + bias.   dl = factor * (softmax(l) - onehot).
// The gradients are known as soon as the logits are, so forward() computes both and backward() hands them over.
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct UnembedCrossEntropy : Op {
  double factor;

  explicit UnembedCrossEntropy(double f) : factor(f) {}
  const char* name() const override { return "unembed_cross_entropy"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2], &targets = in[3];
    require_float(*this, x, "x");
    require_rank(*this, x, "x", 1, kMaxRank);
    require_dtype(*this, weight, "weight", x.dtype());
    require_rank(*this, weight, "weight", 2, 2);
    require(weight.dim(1) == x.dim(-1) && weight.dim(0) > 0,
            "unembed_cross_entropy: weight has the wrong shape; got {}, want [V, {}] for x {}",
            to_string(weight.shape()), x.dim(-1), to_string(x.shape()));
    if (bias) {
      require_dtype(*this, bias, "bias", accumulation_dtype(x.dtype()));
      require_shape(*this, bias, "bias", {weight.dim(0)});
    }
    require_dtype(*this, targets, "targets", Dtype::i32);
    const int64_t rows = x.shape().rows();
    require(targets.numel() == rows,
            "unembed_cross_entropy: targets have the wrong shape; got {}, want one for each row of x {}",
            to_string(targets.shape()), to_string(x.shape()));
    if (targets.device() == Device::cpu) require_in_vocabulary(targets, weight.dim(0));
    return {{{1}, Dtype::f64}, {{1}, Dtype::f64}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    Tensor d[3];
    for (size_t i = 0; i < 3; ++i) {
      if (!saved.needs_backward() || !saved.needs(i)) continue;
      const Dtype dtype = i == 0 ? in[0].dtype() : accumulation_dtype(in[i].dtype());
      d[i] = Tensor::empty(in[i].shape(), dtype, in[i].device(), "a gradient");
    }
    kernels::unembed_cross_entropy(out[0], out[1], d[0], d[1], d[2], in[0], in[1], in[2], in[3], factor);
    for (const Tensor& gradient : d) saved.keep(gradient);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    require(!dy[1], "unembed_cross_entropy: no gradient flows through logit_squares");
    for (size_t i = 0; i < 3; ++i) {
      if (!dx.needs(i)) continue;
      if (dy[0]) kernels::scale_by_value(saved[i], dy[0]);
      dx.pass(i, saved[i]);
    }
  }

 private:
  static void require_in_vocabulary(const Tensor& targets, int64_t vocabulary) {
    const int32_t* ids = targets.data<int32_t>();
    for (int64_t i = 0; i < targets.numel(); ++i) {
      require(ids[i] >= 0 && ids[i] < vocabulary,
              "unembed_cross_entropy: target {} is outside the vocabulary; got id {}, want 0 to {}", i, ids[i],
              vocabulary - 1);
    }
  }
};

}  // namespace

CrossEntropyResult unembed_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                         const Tensor& targets, double factor) {
  const Tensors out = apply(std::make_shared<UnembedCrossEntropy>(factor), {x, weight, bias, targets});
  return {out[0], out[1]};
}

// --- samples ---
namespace {

constexpr double kFactor = 0.25;

Tensor targets_of(const Shape& shape, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(vocabulary));
  return Tensor::from(ids, shape);
}

// The same from plain ops, in double: -log of the softmax at the target, picked by a constant one-hot matrix.
Tensors reference(const Tensors& in) {
  const int64_t rows = in[0].shape().rows(), vocabulary = in[1].dim(0);
  Tensor onehot = Tensor::zeros({rows, vocabulary}, Dtype::f64);
  for (int64_t row = 0; row < rows; ++row) {
    onehot.data<double>()[row * vocabulary + in[3].data<int32_t>()[row]] = 1;
  }
  Tensor logits = matmul(reshape(in[0].cast(Dtype::f64), {rows, in[0].dim(-1)}), in[1].cast(Dtype::f64), {false, true});
  if (in[2]) logits = add(logits, reshape(in[2].cast(Dtype::f64), {1, vocabulary}));
  const Tensor picked = sum_all(multiply(unary(softmax(logits), Unary::log), onehot));
  return {reshape(scaled(picked, -kFactor), {1}), reshape(sum_all(unary(logits, Unary::square)), {1})};
}

Sample sample(const char* label, const Shape& x, int64_t vocabulary, bool has_bias) {
  Sample s;
  s.label = label;
  s.op = [](Dtype) { return std::make_shared<UnembedCrossEntropy>(kFactor); };
  SampleInput bias{{vocabulary}};
  bias.follows_dtype = false;
  if (!has_bias) {
    bias.is_differentiated = false;
    bias.make = [](Dtype) { return Tensor(); };
  }
  Shape target_shape = x;
  target_shape.rank = x.rank - 1;
  target_shape.dims[target_shape.rank] = 1;
  SampleInput targets{target_shape};
  targets.is_differentiated = false;
  targets.make = [=](Dtype) { return targets_of(target_shape, vocabulary); };
  s.inputs = {SampleInput{x}, SampleInput{{vocabulary, x.last()}}, bias, targets};
  s.reference = reference;
  s.outputs_without_grad = {1};
  return s;
}

std::vector<Sample> samples() {
  return {
      sample("plain", {4, 8}, 16, false),
      sample("bias", {2, 3, 8}, 10, true),
      sample("odd sizes", {7, 5}, 13, true),
      sample("one row", {1, 6}, 33, false),
      sample("a vocabulary of one", {3, 4}, 1, true),
      sample("more rows than a block", {600, 3}, 5, true),
  };
}

std::vector<BadSample> bad_samples() {
  const auto zeros = [](const Shape& shape, Dtype dtype = Dtype::f32) { return Tensor::zeros(shape, dtype); };
  const auto call = [](const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets) {
    unembed_cross_entropy(x, weight, bias, targets, 1.0);
  };
  const Tensor targets = Tensor::from(std::vector<int32_t>{0, 1}, {2});
  const Tensor beyond = Tensor::from(std::vector<int32_t>{0, 5}, {2});
  const Tensor negative = Tensor::from(std::vector<int32_t>{-1, 0}, {2});
  return {
      {"got id 5, want 0 to 4",
       [=] {
         call(zeros({2, 3}), zeros({5, 3}), {}, beyond);
       }},
      {"got id -1, want 0 to 4",
       [=] {
         call(zeros({2, 3}), zeros({5, 3}), {}, negative);
       }},
      {"want [V, 3]",
       [=] {
         call(zeros({2, 3}), zeros({5, 4}), {}, targets);
       }},
      {"want [V, 3]",
       [=] {
         call(zeros({2, 3}), zeros({0, 3}), {}, targets);
       }},
      {"want one for each row",
       [=] {
         call(zeros({3, 3}), zeros({5, 3}), {}, targets);
       }},
      {"targets has the wrong dtype",
       [=] {
         call(zeros({2, 3}), zeros({5, 3}), {}, zeros({2}));
       }},
      {"weight has the wrong dtype",
       [=] {
         call(zeros({2, 3}), zeros({5, 3}, Dtype::f64), {}, targets);
       }},
      {"bias has the wrong shape",
       [=] {
         call(zeros({2, 3}), zeros({5, 3}), zeros({3}), targets);
       }},
  };
}

}  // namespace

std::vector<OpInfo> cross_entropy_ops() { return {{"unembed_cross_entropy", samples, bad_samples}}; }

}  // namespace taper
