#include <doctest/doctest.h>

#include "engine/autograd/gradcheck.h"
#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"

namespace taper {
namespace {

using Doubles = std::vector<double>;

Tensor leaf(const Doubles& values, Dtype dtype = Dtype::f64) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}).cast(dtype).set_requires_grad();
}

// Ops that a test makes: y = x, with as much of a backward as a case wants.
struct Identity : Op {
  const char* name() const override { return "identity"; }
  std::vector<Spec> infer(const Tensors& in) const override { return {{in[0].shape(), in[0].dtype()}}; }
  void forward(const Tensors& in, Tensors& out, Saved&) const override { out[0].copy_from(in[0]); }
};

struct Forgetful : Identity {
  const char* name() const override { return "forgetful"; }
  void backward(const Saved&, const Tensors&, Grads&) const override {}
};

struct Wrong : Identity {
  const char* name() const override { return "wrong"; }
  void backward(const Saved&, const Tensors& dy, Grads& dx) const override { dx.pass(0, scaled(dy[0], 1.001)); }
};

TEST_CASE("tape: chains, and a tensor used twice") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = multiply(x, x);
  backward(sum_all(multiply(y, x)));  // x^3
  CHECK(x.grad().to_doubles() == Doubles{3, 12, 27});
}

TEST_CASE("tape: the same tensor as both arguments of a sum") {
  const Tensor x = leaf({1, 2});
  const Tensor y = scaled(x, 2);
  backward(add(y, y), Tensor::from(Doubles{10, 100}, {2}));
  CHECK(x.grad().to_doubles() == Doubles{40, 400});
}

TEST_CASE("tape: one tensor as two inputs whose gradients one kernel writes") {
  const Doubles values{0.5, -1, 2, 0.25};
  const auto normed = [](const Tensor& x, const Tensor& branch, const Tensor& gamma, const Tensor& gamma_tilde) {
    TaperNormInputs inputs;
    inputs.gamma = gamma;
    inputs.gamma_tilde = gamma_tilde;
    inputs.c = Tensor::from(Doubles{0.75}, {1});
    NormOptions options;
    options.gate = 0.5;
    const Tensor y = taper_norm(x, branch, inputs, options, Dtype::f64).y;
    backward(sum_all(multiply(y, Tensor::from(Doubles{1, 2, -3, 0.5}, {1, 4}))));
  };
  const Tensor row = Tensor::from(values, {1, 4}).set_requires_grad();
  const Tensor a = row.clone().set_requires_grad(), b = row.clone().set_requires_grad();
  const Tensor gamma = leaf({1, 0.5, 2, -1}), c = leaf({1, 0.5, 2, -1}), d = leaf({1, 0.5, 2, -1});
  normed(row, row, gamma, gamma);
  normed(a, b, c, d);
  CHECK(row.grad().to_doubles() == add(a.grad(), b.grad()).to_doubles());
  CHECK(gamma.grad().to_doubles() == add(c.grad(), d.grad()).to_doubles());
}

TEST_CASE("tape: gradients gather over passes until they are reset") {
  const Tensor x = leaf({1, 2});
  for (int i = 0; i < 3; ++i) backward(sum_all(scaled(x, 5)));
  CHECK(x.grad().to_doubles() == Doubles{15, 15});
  x.zero_grad();
  CHECK_FALSE(x.grad().is_defined());
  backward(sum_all(scaled(x, 2)));
  CHECK(x.grad().to_doubles() == Doubles{2, 2});
  backward(sum_all(multiply(x, x)));
  CHECK(x.grad().to_doubles() == Doubles{4, 6});
}

TEST_CASE("tape: one leaf's gradient never changes another's") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  backward(sum_all(add(a, b)));  // both receive the same memory first
  backward(sum_all(scaled(a, 10)));
  CHECK(a.grad().to_doubles() == Doubles{11, 11});
  CHECK(b.grad().to_doubles() == Doubles{1, 1});
}

TEST_CASE("tape: a bf16 leaf collects in f32") {
  const Tensor x = leaf({1}, Dtype::bf16);
  for (int i = 0; i < 300; ++i) backward(scaled(x, 1));
  CHECK(x.grad().dtype() == Dtype::f32);
  CHECK(x.grad().item() == 300);  // bf16 would stop at 256
}

TEST_CASE("tape: nothing is recorded without need, nor under NoGrad") {
  const Tensor x = leaf({1, 2}), constant = Tensor::from(Doubles{3, 4}, {2});
  CHECK_FALSE(add(constant, constant).requires_grad());
  CHECK(add(constant, x).requires_grad());
  {
    const NoGrad no_grad;
    CHECK_FALSE(is_grad_enabled());
    CHECK_FALSE(multiply(x, x).requires_grad());
    { const NoGrad inner; }
    CHECK_FALSE(is_grad_enabled());
  }
  CHECK(is_grad_enabled());
  CHECK_FALSE(x.detached().requires_grad());
}

TEST_CASE("tape: a tensor in between keeps its gradient when asked") {
  const Tensor x = leaf({1, 2});
  const Tensor y = scaled(x, 3), z = scaled(y, 5);
  y.set_retain_grad();
  backward(sum_all(z));
  CHECK(y.grad().to_doubles() == Doubles{5, 5});
  CHECK_FALSE(z.grad().is_defined());
  CHECK(x.grad().to_doubles() == Doubles{15, 15});
}

TEST_CASE("tape: several roots in one walk") {
  const Tensor x = leaf({1, 2});
  const Tensor y = scaled(x, 3), z = multiply(y, x);
  backward({y, z}, {Tensor::from(Doubles{1, 0}, {2}), Tensor::from(Doubles{0, 1}, {2})});
  CHECK(x.grad().to_doubles() == Doubles{3, 12});
  CHECK_THROWS_WITH_AS(backward({y, y}, {y.detached()}), doctest::Contains("want as many"), Error);
}

TEST_CASE("tape: misuse of backward is refused") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(backward(Tensor()), doctest::Contains("depends on nothing"), Error);
  CHECK_THROWS_WITH_AS(backward(Tensor::zeros({1}, Dtype::f32)), doctest::Contains("depends on nothing"), Error);
  const Tensor y = scaled(x, 2);
  CHECK_THROWS_WITH_AS(backward(y), doctest::Contains("want one element or a cotangent"), Error);
  CHECK_THROWS_WITH_AS(backward(y, Tensor::zeros({3}, Dtype::f64)), doctest::Contains("cotangent is f64 [3]"), Error);
  CHECK_THROWS_WITH_AS(backward(y, Tensor::zeros({2}, Dtype::f32)), doctest::Contains("cotangent is f32 [2]"), Error);
  const Tensor sum = sum_all(y);
  backward(sum);
  CHECK_THROWS_WITH_AS(backward(sum), doctest::Contains("sum_all was differentiated before"), Error);
  CHECK_THROWS_WITH_AS(backward(sum_all(y)), doctest::Contains("scaled was differentiated before"), Error);
  Tensor inner = scaled(x, 2);
  CHECK_THROWS_WITH_AS(inner.set_requires_grad(), doctest::Contains("want a leaf"), Error);
}

TEST_CASE("tape: an op without backward throws when a gradient is asked of it, and works without") {
  const Tensor x = leaf({1, 2});
  const Tensor y = taper::apply(std::make_shared<Identity>(), {x})[0];
  CHECK(y.to_doubles() == Doubles{1, 2});
  CHECK_THROWS_WITH_AS(backward(sum_all(y)), doctest::Contains("identity: has no backward"), Error);
}

TEST_CASE("tape: a backward that leaves out an input is caught") {
  const Tensor x = leaf({1, 2});
  const Tensor y = taper::apply(std::make_shared<Forgetful>(), {x})[0];
  CHECK_THROWS_WITH_AS(backward(sum_all(y)), doctest::Contains("forgetful: backward left out the gradient of input 0"),
                       Error);
}

TEST_CASE("tape: memory of a graph goes as it is passed") {
  const int64_t before = memory_use().live_bytes;
  {
    const Tensor x = leaf({1, 2, 3});
    Tensor y = x;
    for (int i = 0; i < 2000; ++i) y = multiply(y, x);  // deep: no recursion may run out of stack either
    backward(sum_all(y));
    y = Tensor();
    CHECK(memory_use().live_bytes < before + 4096);
  }
  CHECK(memory_use().live_bytes == before);
}

TEST_CASE("tape: a deep graph that is never walked is freed without deep recursion") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = scaled(y, 1);
  y = Tensor();
  CHECK(x.requires_grad());
}

TEST_CASE("gradient check: a derivative that is off by a thousandth is found, and said where") {
  GradCheck check;
  check.what = "wrong, a test";
  check.function = [](const Tensors& in) { return taper::apply(std::make_shared<Wrong>(), in); };
  check.inputs = {random_normal({2, 3}, Dtype::f64, 5)};
  check.is_differentiated = {true};
  const std::string report = check_gradients(check);
  CHECK(report.find("wrong, a test: input 0, entry 0 of [2, 3]: numeric ") != std::string::npos);
  CHECK(report.find("along a random direction") != std::string::npos);
}

TEST_CASE("gradient check: softmax, whose sum says nothing, passes, and fails when its gradient is dropped") {
  GradCheck check;
  check.what = "softmax";
  check.function = [](const Tensors& in) { return Tensors{softmax(in[0])}; };
  check.inputs = {random_normal({2, 5}, Dtype::f64, 5)};
  check.is_differentiated = {true};
  CHECK(check_gradients(check) == "");
  check.function = [](const Tensors& in) { return Tensors{add(softmax(in[0].detached()), scaled(in[0], 0))}; };
  CHECK(check_gradients(check) != "");
}

}  // namespace
}  // namespace taper
