// Sums, softmax, products and reshaping. Formulas beside the ops.
#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/registry.h"

namespace taper {
namespace {

// y = sum of x over the last dimension or over all; they stay, of size 1.
struct Sum : Op {
  bool is_over_all;

  explicit Sum(bool over_all) : is_over_all(over_all) {}
  const char* name() const override { return is_over_all ? "sum_all" : "sum_last"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    require_rank(*this, in[0], "x", 1, kMaxRank);
    Shape shape = in[0].shape().with_last(1);
    for (int i = 0; i < shape.rank && is_over_all; ++i) shape.dims[i] = 1;
    return {{shape, in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::sum_to(Accumulator(out[0], false), in[0]);
    if (saved.needs_backward()) saved.keep(in[0]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    const Tensor spread = Tensor::empty(saved[0].shape(), dy[0].dtype(), dy[0].device(), "a gradient");
    kernels::fill(spread, 0.0);
    kernels::binary_fwd(spread, spread, dy[0], Binary::add);
    dx.pass(0, spread);
  }
};

// y = exp(x - max x) / sum exp(x - max x) over the last dimension; dx = y (dy - sum(dy y)).
struct Softmax : Op {
  const char* name() const override { return "softmax"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    require_rank(*this, in[0], "x", 1, kMaxRank);
    return {{in[0].shape(), in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::softmax_fwd(out[0], in[0]);
    saved.keep(out[0]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    kernels::softmax_bwd(dx.buffer(0), dy[0], saved[0]);
  }
};

// c = op(a) op(b); each gradient is a product again, laid out as its operand lies in memory.
struct Matmul : Op {
  MatmulOptions options;

  explicit Matmul(MatmulOptions o) : options(o) {}
  const char* name() const override { return "matmul"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    const Tensor &a = in[0], &b = in[1];
    require_float(*this, a, "a");
    require_dtype(*this, b, "b", a.dtype());
    require_rank(*this, a, "a", 2, 2);
    require_rank(*this, b, "b", 2, 2);
    const int64_t m = a.dim(options.transpose_a), k = a.dim(!options.transpose_a);
    const int64_t k_of_b = b.dim(options.transpose_b), n = b.dim(!options.transpose_b);
    require(k == k_of_b, "matmul: the inner sizes differ; got {} of a {} and {} of b {}", k, to_string(a.shape()),
            k_of_b, to_string(b.shape()));
    return {{{m, n}, a.dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::matmul(Accumulator(out[0], false), in[0], in[1], options);
    saved.keep(in[0]);
    saved.keep(in[1]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    const Tensor &a = saved[0], &b = saved[1], &dc = dy[0];
    const bool ta = options.transpose_a, tb = options.transpose_b;
    if (dx.needs(0) && ta) kernels::matmul(dx.buffer(0), b, dc, MatmulOptions{tb, true});
    if (dx.needs(0) && !ta) kernels::matmul(dx.buffer(0), dc, b, MatmulOptions{false, !tb});
    if (dx.needs(1) && tb) kernels::matmul(dx.buffer(1), dc, a, MatmulOptions{true, ta});
    if (dx.needs(1) && !tb) kernels::matmul(dx.buffer(1), a, dc, MatmulOptions{!ta, false});
  }
};

// The same elements under another shape.
struct Reshape : Op {
  Shape shape;

  explicit Reshape(const Shape& s) : shape(s) {}
  const char* name() const override { return "reshape"; }
  std::vector<Spec> infer(const Tensors& in) const override {
    require_float(*this, in[0], "x");
    require(shape.numel() == in[0].numel(), "reshape: got {} for {}, want the same number of elements",
            to_string(shape), to_string(in[0].shape()));
    return {{shape, in[0].dtype()}};
  }
  void forward(const Tensors& in, Tensors& out, Saved& saved) const override {
    kernels::convert(out[0], in[0]);
    if (saved.needs_backward()) saved.keep(in[0]);
  }
  void backward(const Saved& saved, const Tensors& dy, Grads& dx) const override {
    dx.pass(0, dy[0].reshaped(saved[0].shape()));
  }
};

}  // namespace

Tensor sum_last(const Tensor& x) { return apply(std::make_shared<Sum>(false), {x})[0]; }
Tensor sum_all(const Tensor& x) { return apply(std::make_shared<Sum>(true), {x})[0]; }
Tensor softmax(const Tensor& x) { return apply(std::make_shared<Softmax>(), {x})[0]; }
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options) {
  return apply(std::make_shared<Matmul>(options), {a, b})[0];
}
Tensor reshape(const Tensor& x, const Shape& shape) { return apply(std::make_shared<Reshape>(shape), {x})[0]; }

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

// For ops of one argument, which has to have a rank and a float dtype.
template <class F>
std::vector<BadSample> bad_argument(F call) {
  return {{"x is missing", [=] { call(Tensor()); }}, {"x has the wrong dtype", [=] {
                                                        call(Tensor::zeros({2, 2}, Dtype::i32));
                                                      }}};
}

template <class F>
std::vector<BadSample> bad_argument_or_rank(F call) {
  auto bad = bad_argument(call);
  bad.push_back({"x has the wrong rank", [=] { call(Tensor::zeros({}, Dtype::f32)); }});
  return bad;
}

std::vector<Sample> sum_samples(bool is_over_all) {
  const auto make = [is_over_all] { return std::make_shared<Sum>(is_over_all); };
  return {sample("rank 1", make, {{{7}}}), sample("odd sizes", make, {{{3, 131}}}),
          sample("rank 4", make, {{{2, 3, 1, 5}}}), sample("one element", make, {{{1, 1}}}),
          sample("empty rows", make, {{{2, 0}}})};
}

// Beyond the range of exp without its shift by the maximum.
Sample large_logits() {
  Sample s = sample("large logits", [] { return std::make_shared<Softmax>(); }, {{{3, 2}}});
  s.inputs[0].make = [](Dtype dtype) {
    return Tensor::from(std::vector<double>{1e4, 1e4, 1e4, 0, -1e4, -1e4}, {3, 2}).cast(dtype);
  };
  s.reference = [](const Tensors& in) -> Tensors {
    return {Tensor::from(std::vector<double>{0.5, 0.5, 1, 0, 0.5, 0.5}, {3, 2}).cast(in[0].dtype())};
  };
  return s;
}

std::vector<Sample> softmax_samples() {
  const auto make = [] { return std::make_shared<Softmax>(); };
  std::vector<Sample> samples = {sample("rank 2", make, {{{3, 7}}}), sample("rank 4", make, {{{2, 1, 3, 33}}}),
                                 sample("one column", make, {{{4, 1}}}), sample("empty", make, {{{0, 5}}})};
  for (Sample& s : samples) {
    s.reference = [](const Tensors& in) -> Tensors {
      const Tensor e = unary(in[0], Unary::exp);
      return {divide(e, sum_last(e))};
    };
  }
  samples.push_back(large_logits());
  return samples;
}

std::vector<Sample> matmul_samples() {
  std::vector<Sample> samples;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const MatmulOptions options{ta, tb};
      const Shape a = ta ? Shape{5, 3} : Shape{3, 5}, b = tb ? Shape{7, 5} : Shape{5, 7};
      const std::string label = std::string(ta ? "transposed" : "plain") + (tb ? ", transposed" : ", plain");
      samples.push_back(sample(label.c_str(), [options] { return std::make_shared<Matmul>(options); }, {{a}, {b}}));
    }
  }
  samples.push_back(
      sample("one by one", [] { return std::make_shared<Matmul>(MatmulOptions{}); }, {{{1, 1}}, {{1, 1}}}));
  return samples;
}

std::vector<BadSample> matmul_bad_samples() {
  const auto zeros = [](const Shape& shape, Dtype dtype = Dtype::f32) { return Tensor::zeros(shape, dtype); };
  return {{"a is missing",
           [=] {
             matmul(Tensor(), zeros({2, 2}));
           }},
          {"b is missing",
           [=] {
             matmul(zeros({2, 2}), Tensor());
           }},
          {"a has the wrong rank",
           [=] {
             matmul(zeros({2, 2, 2}), zeros({2, 2}));
           }},
          {"b has the wrong rank",
           [=] {
             matmul(zeros({2, 2}), zeros({2}));
           }},
          {"b has the wrong dtype",
           [=] {
             matmul(zeros({2, 2}), zeros({2, 2}, Dtype::f64));
           }},
          {"the inner sizes differ; got 3",
           [=] {
             matmul(zeros({2, 3}), zeros({2, 3}));
           }},
          {"the inner sizes differ; got 2", [=] {
             matmul(zeros({2, 3}), zeros({3, 2}), {true, false});
           }}};
}

std::vector<Sample> reshape_samples() {
  return {sample("to rank 4",
                 [] {
                   return std::make_shared<Reshape>(Shape{2, 1, 3, 2});
                 },
                 {{{3, 4}}}),
          sample("to rank 1", [] { return std::make_shared<Reshape>(Shape{12}); }, {{{3, 4}}})};
}

std::vector<BadSample> reshape_bad_samples() {
  auto bad = bad_argument([](const Tensor& x) { reshape(x, {4}); });
  bad.push_back({"want the same number of elements", [] { reshape(Tensor::zeros({2, 3}, Dtype::f32), {5}); }});
  return bad;
}

}  // namespace

std::vector<OpInfo> plain_ops() {
  return {{"sum_last", [] { return sum_samples(false); }, [] { return bad_argument_or_rank(sum_last); }},
          {"sum_all", [] { return sum_samples(true); }, [] { return bad_argument_or_rank(sum_all); }},
          {"softmax", softmax_samples, [] { return bad_argument_or_rank(softmax); }},
          {"matmul", matmul_samples, matmul_bad_samples, false},  // the libraries split sums by the number of threads
          {"reshape", reshape_samples, reshape_bad_samples}};
}

}  // namespace taper
