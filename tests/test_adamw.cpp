#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/kernels/kernels.h"
#include "engine/ops/ops.h"
#include "engine/optim/adamw.h"

using namespace taper;

namespace {

// What a backward pass leaves: an op whose gradient is a constant.
struct ConstantGradient : Op {
  double value;
  explicit ConstantGradient(double v) : value(v) {}
  const char* name() const override { return "constant_gradient"; }
  std::vector<Spec> infer(const Tensors&) const override { return {{{1}, Dtype::f64}}; }
  void forward(const Tensors&, Tensors& out, Saved&) const override { kernels::fill(out[0], 0); }
  void backward(const Saved&, const Tensors&, Grads& dx) const override {
    const Accumulator buffer = dx.buffer(0);
    const Tensor constant = Tensor::full(buffer.shape, value, buffer.dtype);
    if (buffer.add) {
      kernels::add_to(buffer, constant, 1.0);
    } else {
      kernels::convert(buffer, constant);
    }
  }
};

void add_gradient(const Tensor& leaf, double value) {
  backward(apply(std::make_shared<ConstantGradient>(value), {leaf})[0]);
}

AdamwConfig config(double lr, double weight_decay) {
  AdamwConfig c;
  c.lr = lr;
  c.weight_decay = weight_decay;
  return c;
}

Tensor leaf_of(const Shape& shape, double value, Dtype dtype) {
  Tensor t = Tensor::full(shape, value, dtype);
  t.set_requires_grad();
  return t;
}

}  // namespace

TEST_CASE("adamw: three steps with bias correction, epsilon after it and decoupled decay") {
  const double gradients[] = {0.5, -0.25, 0.1};
  const double want[] = {0.8990000020, 0.8712640579, 0.8382642867};
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    CAPTURE(to_string(dtype));
    const Tensor p = leaf_of({3}, 1.0, dtype);
    Adamw adamw({{"p", p, {}, p, true}}, config(0.1, 0.01));
    for (int i = 0; i < 3; ++i) {
      p.zero_grad();
      add_gradient(p, gradients[i]);
      adamw.step();
      for (const double value : p.to_doubles()) CHECK(std::abs(value - want[i]) < (dtype == Dtype::f64 ? 6e-11 : 2e-7));
    }
    CHECK(adamw.step_count() == 3);
  }
}

TEST_CASE("adamw: a matrix used twice gets one step on the sum of its gradients") {
  const Tensor p = leaf_of({1}, 1.0, Dtype::f64);
  Adamw adamw({{"tied", p, {}, p, true}}, config(0.1, 0.0));
  add_gradient(p, 0.2);
  add_gradient(p, 0.3);
  adamw.step();
  CHECK(p.item() == doctest::Approx(0.9000000020).epsilon(1e-10));
}

TEST_CASE("adamw: small steps add up in the f32 master where bf16 would stand still") {
  const Tensor p = Tensor::full({64}, 1.0, Dtype::f32);
  const Tensor copy = leaf_of({64}, 0.0, Dtype::bf16);
  Adamw adamw({{"gamma", p, copy, copy, false}}, config(6e-4, 0.1));
  CHECK(copy.to_doubles()[0] == 1.0);
  for (int i = 0; i < 100; ++i) {
    copy.zero_grad();
    add_gradient(copy, 1.0);
    adamw.step();
  }
  // A constant gradient makes each step lr; a hundred roundings of half 6e-8 at most.
  CHECK(std::abs(p.to_doubles()[63] - 0.94) < 5e-6);
  CHECK(copy.to_doubles()[63] == 0.94140625);
}

TEST_CASE("adamw: a parameter without a gradient stays as it is, and shares the step counter afterwards") {
  const Tensor a = leaf_of({2}, 1.0, Dtype::f64), b = leaf_of({2}, 1.0, Dtype::f64);
  Adamw adamw({{"a", a, {}, a, true}, {"b", b, {}, b, false}}, config(0.1, 0.1));
  add_gradient(a, 1.0);
  adamw.step();
  CHECK(b.to_doubles()[0] == 1.0);
  CHECK(adamw.state("b").v.to_doubles()[0] == 0.0);
  a.zero_grad();
  add_gradient(b, 1.0);
  adamw.step();
  // m = 0.1, v = 0.05, corrected by 1 - 0.9^2 and 1 - 0.95^2.
  CHECK(b.to_doubles()[0] ==
        doctest::Approx(1 - 0.1 * (0.1 / 0.19) / (std::sqrt(0.05 / 0.0975) + 1e-8)).epsilon(1e-12));
}

TEST_CASE("adamw: the clip factor scales the gradient before the moments") {
  const Tensor a = leaf_of({1}, 1.0, Dtype::f64), b = leaf_of({1}, 1.0, Dtype::f64);
  Adamw clipped({{"a", a, {}, a, true}}, config(0.1, 0.1)), plain({{"b", b, {}, b, true}}, config(0.1, 0.1));
  add_gradient(a, 8.0);
  add_gradient(b, 2.0);
  clipped.step(0.1, 0.25);
  plain.step(0.1);
  CHECK(a.item() == b.item());
  CHECK(clipped.state("a").m.item() == plain.state("b").m.item());
}

TEST_CASE("adamw: state and step count carry a run over to another optimizer bit for bit") {
  const Tensor a = leaf_of({5}, 1.0, Dtype::f32), b = leaf_of({5}, 1.0, Dtype::f32);
  Adamw first({{"p", a, {}, a, true}}, config(0.1, 0.1));
  add_gradient(a, 0.5);
  first.step();
  b.copy_from(a);
  Adamw second({{"p", b, {}, b, true}}, config(0.1, 0.1));
  second.state("p").m.copy_from(first.state("p").m);
  second.state("p").v.copy_from(first.state("p").v);
  second.set_step_count(first.step_count());
  for (const auto& [optimizer, leaf] : {std::pair(&first, a), std::pair(&second, b)}) {
    leaf.zero_grad();
    add_gradient(leaf, -0.3);
    optimizer->step();
  }
  CHECK(a.to_doubles() == b.to_doubles());
}

TEST_CASE("adamw: the summary counts what decays and what does not") {
  const Tensor w = leaf_of({10, 4}, 0, Dtype::f32), gain = leaf_of({4}, 1, Dtype::f32);
  const Tensor bias = leaf_of({10}, 0, Dtype::f32);
  const Adamw adamw({{"w", w, {}, w, true}, {"gain", gain, {}, gain, false}, {"bias", bias, {}, bias, false}},
                    config(0.1, 0.1));
  CHECK(adamw.summary() ==
        "AdamW: weight decay 0.1 on 1 tensors, 40 parameters; none on 2 tensors, 14 parameters; 54 parameters in all");
}

TEST_CASE("adamw: what cannot be optimised is refused") {
  const Tensor w = leaf_of({4}, 0, Dtype::f32), other = leaf_of({5}, 0, Dtype::f32);
  const auto make = [](std::vector<AdamwParameter> parameters, AdamwConfig c = {}) { Adamw(std::move(parameters), c); };
  CHECK_THROWS_WITH(make({{"a", w, {}, w, true}, {"b", w, {}, w, true}}),
                    "adamw: a and b are one tensor; want each listed once");
  CHECK_THROWS_WITH(make({{"a", w, {}, w, true}, {"a", other, {}, other, true}}), "adamw: two parameters are named a");
  CHECK_THROWS_AS(make({{"a", w, {}, other, true}}), Error);
  CHECK_THROWS_AS(make({{"a", leaf_of({4}, 0, Dtype::bf16), {}, w, true}}), Error);
  CHECK_THROWS_AS(make({{"a", w, other, w, true}}), Error);
  CHECK_THROWS_AS(make({}, config(-1, 0)), UsageError);
  CHECK_THROWS_AS(make({}, config(std::nan(""), 0)), UsageError);
  CHECK_THROWS_AS(make({}, config(0.1, -0.1)), UsageError);
}
