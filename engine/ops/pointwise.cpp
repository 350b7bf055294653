// Pointwise ops. Formulas beside the ops.
#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

Tensor like(const Tensor& t, const char* what) { return Tensor::empty(t.shape(), t.dtype(), t.device(), what); }

// Hands a gradient over to an input that may have been broadcast.
void give(Grads& dx, size_t input, const Tensor& gradient) {
  if (!dx.needs(input)) return;
  if (dx.targets()[input].spec.shape == gradient.shape()) return dx.pass(input, gradient);
  kernels::sum_to(dx.buffer(input), gradient);
}

Tensor binary_of(const Tensor& a, const Tensor& b, Binary function) {
  const Tensor y = like(a, "a gradient");
  kernels::binary_fwd(y, a, b, function);
  return y;
}

Tensor scaled_copy(const Tensor& x, double factor) {
  const Tensor y = like(x, "a gradient");
  kernels::convert(y, x);
  kernels::scale_by(y, factor);
  return y;
}

// y = a (op) b; dimensions of size 1 are repeated.
struct BinaryOp : Op {
  Binary function;

  explicit BinaryOp(Binary f) : function(f) {}
  const char* name() const override {
    switch (function) {
      case Binary::add:
        return "add";
      case Binary::subtract:
        return "subtract";
      case Binary::multiply:
        return "multiply";
      case Binary::divide:
        return "divide";
    }
    return "?";
  }

  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &a = in[0], &b = in[1];
    require_float(*this, a, "a");
    require_dtype(*this, b, "b", a.dtype());
    Shape shape = a.shape();
    bool fits = a.shape().rank == b.shape().rank;
    for (int i = 0; i < shape.rank && fits; ++i) {
      fits = a.dim(i) == b.dim(i) || a.dim(i) == 1 || b.dim(i) == 1;
      if (a.dim(i) == 1) shape.dims[i] = b.dim(i);
    }
    require(fits, "{}: a and b do not fit together; got {} and {}, want equal dimensions or 1", name(),
            to_string(a.shape()), to_string(b.shape()));
    return {{shape, a.dtype()}};
  }

  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::binary_fwd(out[0], in[0], in[1], function);
    const bool is_bilinear = function == Binary::multiply || function == Binary::divide;
    saved.keep(is_bilinear ? in[0] : Tensor());
    saved.keep(is_bilinear ? in[1] : Tensor());
  }

  // divide: da = dy / b, db = -(dy / b) (a / b).
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    const Tensor &a = saved[0], &b = saved[1], &g = dy[0];
    switch (function) {
      case Binary::add:
        give(dx, 0, g);
        give(dx, 1, g);
        return;
      case Binary::subtract:
        give(dx, 0, g);
        if (dx.needs(1)) give(dx, 1, scaled_copy(g, -1));
        return;
      case Binary::multiply:
        if (dx.needs(0)) give(dx, 0, binary_of(g, b, Binary::multiply));
        if (dx.needs(1)) give(dx, 1, binary_of(g, a, Binary::multiply));
        return;
      case Binary::divide: {
        const Tensor da = binary_of(g, b, Binary::divide);
        give(dx, 0, da);
        if (!dx.needs(1)) return;
        const Tensor ratio = binary_of(binary_of(da, a, Binary::multiply), b, Binary::divide);
        give(dx, 1, scaled_copy(ratio, -1));
        return;
      }
    }
  }
};

// y = f(x); value and derivative stand in engine/kernels/scalar_math.h.
struct UnaryOp : Op {
  Unary function;

  explicit UnaryOp(Unary f) : function(f) {}
  const char* name() const override { return "unary"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    return {{in[0].shape(), in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::unary_fwd(out[0], in[0], function);
    saved.keep(in[0]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    kernels::unary_bwd(dx.buffer(0), dy[0], saved[0], function);
  }
};

// y = factor * x
struct Scaled : Op {
  double factor;

  explicit Scaled(double f) : factor(f) {}
  const char* name() const override { return "scaled"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    return {{in[0].shape(), in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved&) const override {
    kernels::convert(out[0], in[0]);
    kernels::scale_by(out[0], factor);
  }
  void backward(const Saved&, const Tensors& dy, Grads& dx) const override { dx.pass(0, scaled_copy(dy[0], factor)); }
};

// x = (gate, up): y = silu(gate) up; silu(x) = x sigmoid(x).
struct Swiglu : Op {
  const char* name() const override { return "swiglu"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    require_rank(*this, in[0], "x", 1, kMaxRank);
    require(in[0].dim(-1) % 2 == 0, "swiglu: x has the wrong shape; got {}, want an even last dimension",
            to_string(in[0].shape()));
    return {{in[0].shape().with_last(in[0].dim(-1) / 2), in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::swiglu_fwd(out[0], in[0]);
    saved.keep(in[0]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    kernels::swiglu_bwd(dx.buffer(0), dy[0], saved[0]);
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply(std::make_shared<BinaryOp>(Binary::add), {a, b})[0]; }
Tensor subtract(const Tensor& a, const Tensor& b) {
  return apply(std::make_shared<BinaryOp>(Binary::subtract), {a, b})[0];
}
Tensor multiply(const Tensor& a, const Tensor& b) {
  return apply(std::make_shared<BinaryOp>(Binary::multiply), {a, b})[0];
}
Tensor divide(const Tensor& a, const Tensor& b) { return apply(std::make_shared<BinaryOp>(Binary::divide), {a, b})[0]; }
Tensor unary(const Tensor& x, Unary function) { return apply(std::make_shared<UnaryOp>(function), {x})[0]; }
Tensor scaled(const Tensor& x, double factor) { return apply(std::make_shared<Scaled>(factor), {x})[0]; }
Tensor swiglu(const Tensor& gate_up) { return apply(std::make_shared<Swiglu>(), {gate_up})[0]; }

// --- samples ---
namespace {

template <class F>
Sample sample(const char* label, F make_op, std::vector<SampleInput> inputs) {
  Sample s;
  s.label = label;
  s.op = [make_op](Dtype) { return make_op(); };
  s.inputs = std::move(inputs);
  return s;
}

// Positive and away from zero: arguments of log, sqrt, reciprocal and divisors.
Tensor positive(const Shape& shape, Dtype dtype) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5 + 0.25 * static_cast<double>(i * 7 % 11);
  return Tensor::from(values, shape).cast(dtype);
}

SampleInput positive_input(const Shape& shape) {
  SampleInput input{shape};
  input.make = [shape](Dtype dtype) { return positive(shape, dtype); };
  return input;
}

OpInfo binary_info(const char* name, Binary function) {
  const auto samples = [function] {
    const auto make = [function] { return std::make_shared<BinaryOp>(function); };
    const auto b = [function](const Shape& shape) {
      return function == Binary::divide ? positive_input(shape) : SampleInput{shape};
    };
    return std::vector<Sample>{
        sample("equal shapes", make, {{{3, 5}}, b({3, 5})}),
        sample("one row repeated", make, {{{7, 130}}, b({1, 130})}),
        sample("columns repeated", make, {{{3, 1}}, b({3, 4})}),
        sample("both repeated", make, {{{2, 1, 3, 1}}, b({1, 2, 1, 5})}),
        sample("one element", make, {{{1}}, b({6})}),
        sample("empty", make, {{{0, 3}}, b({1, 3})}),
    };
  };
  const auto bad_samples = [function] {
    const auto call = [function](const Tensor& a, const Tensor& b) {
      apply(std::make_shared<BinaryOp>(function), {a, b});
    };
    const Tensor x = Tensor::zeros({2, 3}, Dtype::f32);
    return std::vector<BadSample>{
        {"a is missing", [=] { call(Tensor(), x); }},
        {"b is missing", [=] { call(x, Tensor()); }},
        {"b has the wrong dtype", [=] { call(x, x.cast(Dtype::bf16)); }},
        {"a has the wrong dtype", [=] { call(x.cast(Dtype::i32), x); }},
        {"want equal dimensions or 1",
         [=] {
           call(x, Tensor::zeros({2, 4}, Dtype::f32));
         }},
        {"want equal dimensions or 1", [=] { call(x, Tensor::zeros({3}, Dtype::f32)); }},
    };
  };
  return {name, samples, bad_samples};
}

std::vector<Sample> unary_samples() {
  std::vector<Sample> samples;
  const std::pair<const char*, Unary> everywhere[] = {
      {"negate", Unary::negate},     {"exp", Unary::exp},   {"square", Unary::square},
      {"abs", Unary::abs},           {"tanh", Unary::tanh}, {"gelu_tanh", Unary::gelu_tanh},
      {"gelu_erf", Unary::gelu_erf}, {"relu", Unary::relu}, {"silu", Unary::silu}};
  for (const auto& [label, function] : everywhere) {
    samples.push_back(
        sample(label, [function = function] { return std::make_shared<UnaryOp>(function); }, {{{3, 37}}}));
  }
  const std::pair<const char*, Unary> positives[] = {
      {"log", Unary::log}, {"sqrt", Unary::sqrt}, {"reciprocal", Unary::reciprocal}};
  for (const auto& [label, function] : positives) {
    samples.push_back(
        sample(label, [function = function] { return std::make_shared<UnaryOp>(function); }, {positive_input({3, 7})}));
  }
  return samples;
}

std::vector<BadSample> unary_bad_samples() {
  return {{"x is missing", [] { unary(Tensor(), Unary::exp); }},
          {"x has the wrong dtype", [] { unary(Tensor::zeros({2}, Dtype::i32), Unary::exp); }}};
}

std::vector<Sample> scaled_samples() {
  const auto make = [] { return std::make_shared<Scaled>(-2.5); };
  return {sample("rank 2", make, {{{3, 5}}}), sample("rank 0", make, {{{}}}), sample("empty", make, {{{2, 0}}})};
}

std::vector<BadSample> scaled_bad_samples() {
  return {{"x is missing", [] { scaled(Tensor(), 2); }},
          {"x has the wrong dtype", [] { scaled(Tensor::zeros({2}, Dtype::i32), 2); }}};
}

// Half of the columns of x [N, 2 H], from column `first` on.
Tensor half_of(const Tensor& x, int64_t first) {
  const int64_t width = x.dim(-1), half = width / 2;
  std::vector<double> picks(static_cast<size_t>(width * half), 0.0);
  for (int64_t i = 0; i < half; ++i) picks[static_cast<size_t>((first + i) * half + i)] = 1;
  return matmul(x, Tensor::from(picks, {width, half}).cast(x.dtype()));
}

std::vector<Sample> swiglu_samples() {
  const auto swiglu_sample = [](const char* label, const Shape& shape) {
    Sample s = sample(label, [] { return std::make_shared<Swiglu>(); }, {{shape}});
    s.reference = [](const Tensors& in) -> Tensors {
      const int64_t width = in[0].dim(-1);
      const Tensor x = reshape(in[0], {in[0].numel() / width, width});
      const Tensor y = multiply(unary(half_of(x, 0), Unary::silu), half_of(x, width / 2));
      return {reshape(y, in[0].shape().with_last(width / 2))};
    };
    return s;
  };
  return {swiglu_sample("odd sizes", {5, 34}), swiglu_sample("rank 1", {2}), swiglu_sample("rank 4", {2, 1, 3, 6})};
}

std::vector<BadSample> swiglu_bad_samples() {
  return {{"x is missing", [] { swiglu(Tensor()); }},
          {"x has the wrong dtype",
           [] {
             swiglu(Tensor::zeros({2, 4}, Dtype::i32));
           }},
          {"x has the wrong rank", [] { swiglu(Tensor::zeros({}, Dtype::f32)); }},
          {"want an even last dimension", [] {
             swiglu(Tensor::zeros({2, 3}, Dtype::f32));
           }}};
}

}  // namespace

std::vector<OpInfo> pointwise_ops() {
  return {binary_info("add", Binary::add),
          binary_info("subtract", Binary::subtract),
          binary_info("multiply", Binary::multiply),
          binary_info("divide", Binary::divide),
          {"unary", unary_samples, unary_bad_samples},
          {"scaled", scaled_samples, scaled_bad_samples},
          {"swiglu", swiglu_samples, swiglu_bad_samples}};
}

}  // namespace taper
