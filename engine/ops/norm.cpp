// The tapered norm (Kanavalau, Amo Alonso, Lall, arXiv 2602.10408). h = x + branch; a row has d entries, gate g:
//   rms:    h' = h             y = g n gamma + (1 - g) c h' gamma_tilde
//   layer:  h' = h - mean(h)   y = g (n gamma + beta) + (1 - g) (c h' gamma_tilde + beta_tilde)
//   n = h' / r,  r = sqrt(mean(h'^2) + eps)
// At g = 1 it is the plain norm to the bit, and the scaling branch is not evaluated; at g = 0 no statistic of a row is
// computed but the mean that centres it.
// Backward, u = g gamma dy:
//   dh' = u / r - n mean(u n) / r + (1 - g) c gamma_tilde dy,   dh = dh' (rms) or dh' - mean(dh') (layer)
//   dgamma = g sum(dy n), dbeta = g sum(dy), dgamma_tilde = (1 - g) c sum(dy h'), dbeta_tilde = (1 - g) sum(dy)
// A parameter whose factor is 0 gets an exact zero. c is calibrated, not trained: it has no gradient.
//
// Memory: x and branch are read once; y and, where there is a branch, h are written once. Kept for the backward pass: h
// (shared with the residual stream), one mean (layer) and one 1 / r (g > 0) a row. Statistics, parameters and sums are
// f32 (f64 for f64).
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

enum Input : size_t { kX, kBranch, kGamma, kBeta, kGammaTilde, kBetaTilde, kC };

void zero(const Accumulator& gradient) {
  if (gradient && !gradient.add) kernels::fill(gradient, 0.0);
}

struct TaperNorm : Op {
  NormOptions options;
  Dtype out_dtype;
  bool wants_calibration;

  TaperNorm(const NormOptions& o, Dtype dtype, bool calibrates)
      : options(o), out_dtype(dtype), wants_calibration(calibrates) {}
  const char* name() const override { return "taper_norm"; }

  bool is_layer() const { return options.kind == NormKind::layer; }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &x = in[kX], &branch = in[kBranch];
    require_float(*this, x, "x");
    require_rank(*this, x, "x", 1, kMaxRank);
    require(x.dim(-1) > 0, "taper_norm: x has the wrong shape; got {}, want rows of at least one entry",
            to_string(x.shape()));
    require(options.gate >= 0 && options.gate <= 1, "taper_norm: gate is out of range; got {}, want 0 to 1",
            options.gate);
    require(options.eps >= 0 && std::isfinite(options.eps), "taper_norm: eps is out of range; got {}, want 0 or more",
            options.eps);
    if (branch) {
      require_shape(*this, branch, "branch", x.shape());
      require_companion(x, branch.dtype(), "branch");
    }
    require_companion(x, out_dtype, "the result");
    const bool has_scaling = options.gate < 1;
    require_parameter(in, kGamma, "gamma", true);
    require_parameter(in, kBeta, "beta", is_layer());
    require_parameter(in, kGammaTilde, "gamma_tilde", has_scaling);
    require_parameter(in, kBetaTilde, "beta_tilde", has_scaling && is_layer());
    if (has_scaling) {
      require_shape(*this, in[kC], "c", {1});
      require_dtype(*this, in[kC], "c", accumulation_dtype(x.dtype()));
    }
    require(!in[kC].requires_grad(), "taper_norm: c requires a gradient, want a constant");

    std::vector<Spec> specs = {{x.shape(), out_dtype}};
    if (branch) specs.push_back({x.shape(), x.dtype()});
    if (wants_calibration) specs.push_back({{2}, Dtype::f64});
    return specs;
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    const Tensor& x = in[kX];
    const Tensor sum = in[kBranch] ? out[1] : Tensor();
    const Tensor calibration = wants_calibration ? out.back() : Tensor();
    const Dtype dtype = accumulation_dtype(x.dtype());
    Tensor mean, rstd;
    if (saved.needs_backward() && is_layer()) {
      mean = Tensor::empty({x.shape().rows()}, dtype, x.device(), "the means of a norm");
    }
    if (saved.needs_backward() && options.gate > 0) {
      rstd = Tensor::empty({x.shape().rows()}, dtype, x.device(), "the statistics of a norm");
    }
    kernels::taper_norm_fwd(out[0], sum, mean, rstd, calibration, x, in[kBranch], in[kGamma], in[kBeta],
                            in[kGammaTilde], in[kBetaTilde], in[kC], options);
    if (!saved.needs_backward()) return;
    for (const Tensor& kept : {sum ? sum : x, mean, rstd, in[kGamma], in[kGammaTilde], in[kC]}) saved.keep(kept);
  }

  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    require(!wants_calibration || !dy.back(), "taper_norm: no gradient flows through calibration");
    const bool has_branch = dy.size() == (wants_calibration ? 3 : 2);
    const Tensor dsum = has_branch ? dy[1] : Tensor();
    if (!dy[0]) {
      dx.pass(kX, dsum);
      dx.pass(kBranch, dsum);
      for (const Input i : {kGamma, kBeta, kGammaTilde, kBetaTilde}) zero(dx.buffer(i));
      return;
    }
    kernels::taper_norm_bwd(dx.buffer(kX), dx.buffer(kBranch), dx.buffer(kGamma), dx.buffer(kBeta),
                            dx.buffer(kGammaTilde), dx.buffer(kBetaTilde), dy[0], dsum, saved[0], saved[1], saved[2],
                            saved[3], saved[4], saved[5], options);
  }

 private:
  void require_companion(const Tensor& x, Dtype dtype, const char* what) const {
    const bool fits = dtype != Dtype::i32 && (dtype == Dtype::f64) == (x.dtype() == Dtype::f64);
    require(fits, "taper_norm: {} has the wrong dtype; got {} beside x {}, want {}", what, to_string(dtype),
            to_string(x.dtype()), x.dtype() == Dtype::f64 ? "f64" : "f32 or bf16");
  }
  void require_parameter(const Tensors& in, Input i, const char* what, bool is_required) const {
    if (!in[i] && !is_required) return;
    require_shape(*this, in[i], what, {in[kX].dim(-1)});
    require_dtype(*this, in[i], what, accumulation_dtype(in[kX].dtype()));
  }
};

}  // namespace

TaperNormResult taper_norm(const Tensor& x, const Tensor& branch, const TaperNormInputs& inputs,
                           const NormOptions& options, Dtype out_dtype, bool wants_calibration) {
  const auto op = std::make_shared<TaperNorm>(options, out_dtype, wants_calibration);
  const Tensors out =
      apply(op, {x, branch, inputs.gamma, inputs.beta, inputs.gamma_tilde, inputs.beta_tilde, inputs.c});
  return {out[0], branch ? out[1] : x, wants_calibration ? out.back() : Tensor()};
}

// --- samples ---
namespace {

Tensor constant(double value, const Tensor& like) { return Tensor::full(like.shape(), value, like.dtype()); }

Tensor as_row(const Tensor& parameter, const Tensor& x) {
  Shape shape = x.shape();
  for (int i = 0; i + 1 < shape.rank; ++i) shape.dims[i] = 1;
  return reshape(parameter, shape);
}

Tensors reference(const Tensors& in, const NormOptions& options, bool wants_calibration) {
  const Tensor h = in[kBranch] ? add(in[kX], in[kBranch]) : in[kX];
  const bool is_layer = options.kind == NormKind::layer;
  const double share = 1.0 / static_cast<double>(h.dim(-1));
  const Tensor centred = is_layer ? subtract(h, scaled(sum_last(h), share)) : h;
  const Tensor square = scaled(sum_last(unary(centred, Unary::square)), share);
  const Tensor r = unary(add(square, constant(options.eps, square)), Unary::sqrt);
  const Tensor weighted = multiply(centred, as_row(in[kGamma], h));
  Tensor y;
  if (options.gate > 0) {
    y = divide(weighted, r);
    if (is_layer) y = add(y, as_row(in[kBeta], h));
    y = scaled(y, options.gate);
  }
  if (options.gate < 1) {
    Tensor scaling = scaled(multiply(centred, as_row(in[kGammaTilde], h)), in[kC].item());
    if (is_layer) scaling = add(scaling, as_row(in[kBetaTilde], h));
    scaling = scaled(scaling, 1 - options.gate);
    y = y ? add(y, scaling) : scaling;
  }
  Tensors out = {y};
  if (in[kBranch]) out.push_back(h);
  if (wants_calibration) {
    const Tensor squares = sum_last(unary(weighted, Unary::square));
    const std::vector<double> sums = {sum_all(divide(squares, r)).item(), sum_all(squares).item()};
    out.push_back(Tensor::from(sums, {2}));
  }
  return out;
}

struct Case {
  const char* label;
  Shape shape;
  NormKind kind;
  double gate;
  bool has_branch = false;
  bool wants_calibration = false;
  bool is_residual_f32 = false;  // the residual stream stays f32 beside bf16 activations
  double eps = 1e-5;
};

SampleInput absent() {
  SampleInput input{{}};
  input.is_differentiated = false;
  input.make = [](Dtype) { return Tensor(); };
  return input;
}

Sample sample(const Case& c) {
  Sample s;
  s.label = c.label;
  const NormOptions options{c.kind, c.eps, c.gate};
  s.op = [=](Dtype dtype) { return std::make_shared<TaperNorm>(options, dtype, c.wants_calibration); };
  SampleInput x{c.shape}, branch{c.shape}, parameter{{c.shape.last()}}, scale{{1}};
  x.follows_dtype = !c.is_residual_f32;
  parameter.follows_dtype = scale.follows_dtype = false;
  scale.is_differentiated = false;
  scale.make = [](Dtype dtype) { return Tensor::full({1}, 0.7, dtype); };
  const bool is_layer = c.kind == NormKind::layer;
  const auto where = [&](bool is_present, const SampleInput& input) { return is_present ? input : absent(); };
  s.inputs = {x,
              where(c.has_branch, branch),
              parameter,
              where(is_layer, parameter),
              where(c.gate < 1, parameter),
              where(is_layer && c.gate < 1, parameter),
              where(c.gate < 1, scale)};
  s.reference = [=](const Tensors& in) { return reference(in, options, c.wants_calibration); };
  if (c.wants_calibration) s.outputs_without_grad = {c.has_branch ? 2 : 1};
  return s;
}

std::vector<Sample> samples() {
  constexpr NormKind rms = NormKind::rms, layer = NormKind::layer;
  std::vector<Sample> all;
  const Case cases[] = {
      {"rms, gate 1", {2, 3, 37}, rms, 1},
      {"rms, gate 0", {2, 3, 37}, rms, 0},
      {"rms, gate 0.37", {2, 3, 37}, rms, 0.37},
      {"layer, gate 1", {2, 3, 37}, layer, 1},
      {"layer, gate 0", {2, 3, 37}, layer, 0},
      {"layer, gate 0.37", {2, 3, 37}, layer, 0.37},
      {"rms, branch, gate 1, calibration", {5, 64}, rms, 1, true, true},
      {"rms, branch, gate 0", {5, 64}, rms, 0, true},
      {"rms, branch, gate 0.8, f32 residual", {5, 33}, rms, 0.8, true, false, true},
      {"layer, branch, gate 1, calibration, f32 residual", {5, 33}, layer, 1, true, true, true},
      {"layer, branch, gate 0, f32 residual", {4, 16}, layer, 0, true, false, true},
      {"layer, branch, gate 0.2", {4, 17}, layer, 0.2, true},
      {"calibration without branch, several parts", {300, 257}, rms, 0.5, false, true},
      {"layer, several parts", {130, 600}, layer, 0.5},
      {"one entry", {3, 1}, rms, 0.5},
      {"one entry, layer", {3, 1}, layer, 0.5},
      {"rank 1", {9}, layer, 0.5, true},
      {"no rows", {0, 8}, layer, 0.5, true, true},
      {"large eps", {3, 8}, layer, 1, false, false, false, 100},
  };
  for (const Case& c : cases) all.push_back(sample(c));
  return all;
}

std::vector<BadSample> bad_samples() {
  const auto call = [](std::pair<const char*, Tensor> change, double gate = 0.5, Dtype out = Dtype::f32,
                       double eps = 1e-5) {
    return [=] {
      const auto zeros = [&](const char* name, const Shape& shape) {
        return std::string(change.first) == name ? change.second : Tensor::zeros(shape, Dtype::f32);
      };
      const TaperNormInputs inputs{zeros("gamma", {4}), zeros("beta", {4}), zeros("gamma_tilde", {4}),
                                   zeros("beta_tilde", {4}), zeros("c", {1})};
      taper_norm(zeros("x", {2, 4}), zeros("branch", {2, 4}), inputs, {NormKind::layer, eps, gate}, out);
    };
  };
  const Tensor wrong = Tensor::zeros({3}, Dtype::f32), none;
  Tensor trained = Tensor::zeros({1}, Dtype::f32);
  trained.set_requires_grad();
  return {
      {"x is missing", call({"x", none})},
      {"x has the wrong dtype", call({"x", Tensor::zeros({2, 4}, Dtype::i32)})},
      {"x has the wrong rank", call({"x", Tensor::zeros({}, Dtype::f32)})},
      {"want rows of at least one entry", call({"x", Tensor::zeros({2, 0}, Dtype::f32)})},
      {"branch has the wrong shape", call({"branch", wrong})},
      {"branch has the wrong dtype", call({"branch", Tensor::zeros({2, 4}, Dtype::f64)})},
      {"the result has the wrong dtype", call({"", none}, 0.5, Dtype::f64)},
      {"gamma is missing", call({"gamma", none})},
      {"gamma has the wrong shape", call({"gamma", wrong})},
      {"gamma has the wrong dtype", call({"gamma", Tensor::zeros({4}, Dtype::bf16)})},
      {"beta is missing", call({"beta", none})},
      {"gamma_tilde is missing", call({"gamma_tilde", none})},
      {"beta_tilde is missing", call({"beta_tilde", none})},
      {"c is missing", call({"c", none})},
      {"c has the wrong shape", call({"c", wrong})},
      {"c requires a gradient", call({"c", trained})},
      {"gate is out of range; got 1.5", call({"", none}, 1.5)},
      {"gate is out of range; got -0.1", call({"", none}, -0.1)},
      {"gate is out of range; got nan", call({"", none}, std::nan(""))},
      {"eps is out of range", call({"", none}, 0.5, Dtype::f32, -1)},
  };
}

}  // namespace

std::vector<OpInfo> norm_ops() { return {{"taper_norm", samples, bad_samples}}; }

}  // namespace taper
