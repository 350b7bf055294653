// The anchor of a model whose final norm tapers (arXiv 2602.10408):
//   loss = factor * sum over rows of (s - target)^2,  s = sqrt(mean(h'^2) + eps),
//   h' = h (rms) or h - mean(h) (layer).            dh = 2 factor (s - target) h' / (d s)
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

struct ScaleLoss : Op {
  NormKind kind;
  double eps, target, factor;

  ScaleLoss(NormKind k, double e, double t, double f) : kind(k), eps(e), target(t), factor(f) {}
  const char* name() const override { return "scale_loss"; }

  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "h");
    require_rank(*this, in[0], "h", 1, kMaxRank);
    require(in[0].dim(-1) > 0, "scale_loss: h has the wrong shape; got {}, want rows of at least one entry",
            to_string(in[0].shape()));
    require(eps >= 0 && std::isfinite(eps), "scale_loss: eps is out of range; got {}, want 0 or more", eps);
    require(std::isfinite(target), "scale_loss: target is out of range; got {}, want a finite number", target);
    return {{{1}, Dtype::f64}, {{3}, Dtype::f64}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    const Tensor& h = in[0];
    const Tensor s = Tensor::empty({h.shape().rows()}, accumulation_dtype(h.dtype()), h.device(), "the scales of rows");
    kernels::scale_loss_fwd(out[1], s, h, kind, eps, target);
    kernels::convert(out[0], out[1].rows(2, 3));
    kernels::scale_by(out[0], factor);
    saved.keep(h);
    saved.keep(s);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    require(!dy[1], "scale_loss: no gradient flows through sums");
    kernels::scale_loss_bwd(dx.buffer(0), saved[0], saved[1], dy[0], kind, target, factor);
  }
};

}  // namespace

ScaleLossResult scale_loss(const Tensor& h, NormKind kind, double eps, double target, double factor) {
  const Tensors out = apply(std::make_shared<ScaleLoss>(kind, eps, target, factor), {h});
  return {out[0], out[1]};
}

// --- samples ---
namespace {

constexpr double kTarget = 0.8, kFactor = 0.3, kEps = 1e-5;

Tensors reference(const Tensors& in, NormKind kind) {
  const Tensor& h = in[0];
  const double share = 1.0 / static_cast<double>(h.dim(-1));
  const Tensor centred = kind == NormKind::layer ? subtract(h, scaled(sum_last(h), share)) : h;
  const Tensor square = scaled(sum_last(unary(centred, Unary::square)), share);
  const auto constant = [&](double value) { return Tensor::full(square.shape(), value, square.dtype()); };
  const Tensor s = unary(add(square, constant(kEps)), Unary::sqrt);
  const Tensor error = sum_all(unary(subtract(s, constant(kTarget)), Unary::square));
  double greatest = 0;
  for (const double value : s.to_doubles()) greatest = std::max(greatest, value);
  const std::vector<double> sums = {sum_all(s).item(), greatest, error.item()};
  return {reshape(scaled(error, kFactor), {1}), Tensor::from(sums, {3})};
}

Sample sample(const char* label, const Shape& shape, NormKind kind) {
  Sample s;
  s.label = label;
  s.op = [kind](Dtype) { return std::make_shared<ScaleLoss>(kind, kEps, kTarget, kFactor); };
  s.inputs = {SampleInput{shape}};
  s.reference = [kind](const Tensors& in) { return reference(in, kind); };
  s.outputs_without_grad = {1};
  return s;
}

std::vector<Sample> samples() {
  return {sample("rms", {2, 3, 37}, NormKind::rms), sample("layer", {2, 3, 37}, NormKind::layer),
          sample("several parts", {300, 257}, NormKind::layer), sample("one entry", {4, 1}, NormKind::rms),
          sample("no rows", {0, 4}, NormKind::rms)};
}

std::vector<BadSample> bad_samples() {
  const auto call = [](const Tensor& h, double eps, double target) {
    return [=] { scale_loss(h, NormKind::rms, eps, target, 1); };
  };
  const Tensor h = Tensor::zeros({2, 3}, Dtype::f32);
  return {{"h is missing", call(Tensor(), kEps, kTarget)},
          {"h has the wrong dtype", call(Tensor::zeros({2}, Dtype::i32), kEps, kTarget)},
          {"h has the wrong rank", call(Tensor::zeros({}, Dtype::f32), kEps, kTarget)},
          {"want rows of at least one entry", call(Tensor::zeros({2, 0}, Dtype::f32), kEps, kTarget)},
          {"eps is out of range", call(h, -1, kTarget)},
          {"target is out of range", call(h, kEps, std::nan(""))}};
}

}  // namespace

std::vector<OpInfo> scale_loss_ops() { return {{"scale_loss", samples, bad_samples}}; }

}  // namespace taper
