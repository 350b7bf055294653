// The tapered norm, its anchor and embeddings where tests/test_ops.cpp does not reach: known values, the two ends of
// the gate, and Euler's identity.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/autograd/gradcheck.h"
#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/ops/ops.h"

namespace taper {
namespace {

using Doubles = std::vector<double>;

const double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor row_of(const Doubles& values, Dtype dtype = Dtype::f32) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}).cast(dtype);
}

TaperNormInputs all_equal(int64_t size, double gamma, double gamma_tilde, double c, Dtype dtype = Dtype::f32) {
  TaperNormInputs inputs;
  inputs.gamma = Tensor::full({size}, gamma, dtype);
  inputs.beta = Tensor::full({size}, gamma == gamma ? 0.0 : kNan, dtype);
  inputs.gamma_tilde = Tensor::full({size}, gamma_tilde, dtype);
  inputs.beta_tilde = Tensor::full({size}, gamma_tilde == gamma_tilde ? 0.0 : kNan, dtype);
  inputs.c = Tensor::full({1}, c, dtype);
  return inputs;
}

bool are_equal(const Tensor& a, const Tensor& b) { return a.to_doubles() == b.to_doubles(); }

// The form in which models without norms are published: eps and gain so large that the statistic does not matter.
TEST_CASE("norm: a large eps and gain give the centred input") {
  const Tensor x = row_of({1, 2, 3, 6});
  const NormOptions options{NormKind::layer, 1e12, 1.0};
  const Doubles y = taper_norm(x, {}, all_equal(4, 1e6, 0, 0), options, Dtype::f32).y.to_doubles();
  const Doubles want = {-2, -1, 0, 3};
  for (size_t i = 0; i < 4; ++i) CHECK(std::fabs(y[i] - want[i]) < 1e-6);
}

TEST_CASE("norm: the RMS form does not centre") {
  const NormOptions options{NormKind::rms, 0.0, 1.0};
  const Doubles y = taper_norm(row_of({1, 3}), {}, all_equal(2, 1, 0, 0), options, Dtype::f32).y.to_doubles();
  CHECK(y[0] == doctest::Approx(0.4472136).epsilon(1e-6));
  CHECK(y[1] == doctest::Approx(1.3416408).epsilon(1e-6));
}

TEST_CASE("norm: at gate 1 the plain norm to the bit, the scaling branch not evaluated") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      const Tensor x = random_normal({5, 67}, dtype, 3);
      const NormOptions options{kind, 1e-5, 1.0};
      TaperNormInputs poisoned = all_equal(67, 1.7, kNan, kNan, dtype);
      const Tensor y = taper_norm(x, {}, poisoned, options, dtype).y;
      TaperNormInputs plain = poisoned;
      plain.gamma_tilde = plain.beta_tilde = plain.c = Tensor();
      CHECK(are_equal(y, taper_norm(x, {}, plain, options, dtype).y));
    }
  }
  const Tensor x = random_normal({3, 67}, Dtype::f32, 3), gamma = random_normal({67}, Dtype::f32, 4);
  const Tensor y = Tensor::empty({3, 67}, Dtype::f32), rstd = Tensor::empty({3}, Dtype::f32), none;
  kernels::taper_norm_fwd(y, none, none, rstd, none, x, none, gamma, none, none, none, none, NormOptions{});
  bool is_plain_norm = true;
  for (int i = 0; i < 3 * 67; ++i) {
    const float want = x.data<float>()[i] * rstd.data<float>()[i / 67] * gamma.data<float>()[i % 67];
    is_plain_norm = is_plain_norm && y.data<float>()[i] == want;
  }
  CHECK(is_plain_norm);
}

TEST_CASE("norm: at gate 0 no statistic is computed, and the norm's parameters are not read") {
  set_memory_guard(true);
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    // Their squares leave the range of f32.
    const Tensor x = row_of({1e25, -1e25, 3e24, -3e24}).reshaped({1, 4});
    const TaperNormInputs p = all_equal(4, kNan, 2, 0.5);
    const Tensor y = Tensor::empty({1, 4}, Dtype::f32), rstd = Tensor::empty({1}, Dtype::f32), none;
    const Tensor mean = Tensor::empty({1}, Dtype::f32);
    const NormOptions options{kind, 1e-5, 0.0};
    kernels::taper_norm_fwd(y, none, mean, rstd, none, x, none, p.gamma, p.beta, p.gamma_tilde, p.beta_tilde, p.c,
                            options);
    CHECK(are_equal(y, x));  // 0.5 * 2 * x, and their mean is 0
    CHECK(std::isnan(rstd.item()));
    CHECK(std::isnan(mean.item()) == (kind == NormKind::rms));

    Tensor leaf = x.clone();
    leaf.set_requires_grad();
    backward(taper_norm(leaf, {}, p, options, Dtype::f32).y, row_of({1, -1, 2, -2}).reshaped({1, 4}));
    CHECK(leaf.grad().to_doubles() == Doubles{1, -1, 2, -2});
  }
  set_memory_guard(false);
}

TEST_CASE("norm: parameters whose branch has weight 0 get exact zeros") {
  for (const double gate : {0.0, 1.0}) {
    const Tensor x = random_normal({6, 8}, Dtype::f32, 1);
    TaperNormInputs p = all_equal(8, 1.5, 0.5, 2);
    for (Tensor* t : {&p.gamma, &p.beta, &p.gamma_tilde, &p.beta_tilde}) t->set_requires_grad();
    const NormOptions options{NormKind::layer, 1e-5, gate};
    backward(taper_norm(x, {}, p, options, Dtype::f32).y, random_normal({6, 8}, Dtype::f32, 2));
    const auto is_zero = [](const Tensor& t) { return t.grad().to_doubles() == Doubles(8, 0.0); };
    CHECK(is_zero(p.gamma) == (gate == 0));
    CHECK(is_zero(p.beta) == (gate == 0));
    CHECK(is_zero(p.gamma_tilde) == (gate == 1));
    CHECK(is_zero(p.beta_tilde) == (gate == 1));
  }
}

TEST_CASE("norm: calibration at a known row") {
  const Tensor x = row_of({3, 4}, Dtype::f64);
  TaperNormInputs p = all_equal(2, 1, 0, 0, Dtype::f64);
  p.gamma = row_of({1, 2}, Dtype::f64);
  const NormOptions options{NormKind::rms, 0.0, 1.0};
  const Doubles sums = taper_norm(x, {}, p, options, Dtype::f64, true).calibration.to_doubles();
  CHECK(sums[1] == doctest::Approx(9 + 64));
  CHECK(sums[0] == doctest::Approx(73 / std::sqrt(12.5)));
}

// A norm is 0-homogeneous but for eps: <grad_h f, h> = (eps / r^2) <grad_n f, n>.
TEST_CASE("norm: Euler's identity, exact with eps") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    const double eps = 0.3;
    const Tensor w = random_normal({7, 5}, Dtype::f64, 9);
    const Tensor targets = Tensor::from(std::vector<int32_t>{4}, {1});
    Tensor h = random_normal({1, 5}, Dtype::f64, 8);
    h.set_requires_grad();
    const Tensor n = taper_norm(h, {}, all_equal(5, 1, 0, 0, Dtype::f64), {kind, eps, 1.0}, Dtype::f64).y;
    n.set_retain_grad();
    backward(unembed_cross_entropy(n, w, {}, targets, 1.0).loss);
    const Doubles dh = h.grad().to_doubles(), dn = n.grad().to_doubles(), hs = h.to_doubles(), ns = n.to_doubles();
    double along_h = 0, along_n = 0, mean = 0, square = 0;
    for (size_t i = 0; i < 5; ++i) {
      along_h += dh[i] * hs[i];
      along_n += dn[i] * ns[i];
      mean += kind == NormKind::layer ? hs[i] / 5 : 0;
    }
    for (const double value : hs) square += (value - mean) * (value - mean) / 5;
    CHECK(along_n != doctest::Approx(0));
    CHECK(std::fabs(along_h - eps / (square + eps) * along_n) < 1e-12);
  }
}

// Why the anchor exists: without the norm, a greater |h| lowers the loss of a token that is classified right.
TEST_CASE("norm: without it, the loss of a token classified right falls along h") {
  const Tensor w = random_normal({7, 5}, Dtype::f64, 9);
  Tensor h = scaled(w.rows(2, 3), 3).detached();
  const Doubles logits = matmul(h, w, {false, true}).to_doubles();
  for (size_t i = 0; i < 7; ++i) REQUIRE((i == 2 || logits[i] < logits[2]));
  h.set_requires_grad();
  backward(unembed_cross_entropy(h, w, {}, Tensor::from(std::vector<int32_t>{2}, {1}), 1.0).loss);
  double along = 0;
  for (size_t i = 0; i < 5; ++i) along += h.grad().to_doubles()[i] * h.to_doubles()[i];
  CHECK(along < 0);
}

TEST_CASE("scale loss: known rows, and a NaN that is seen") {
  const Tensor h = Tensor::from(Doubles{3, 4, 0, 0, 1, -1}, {3, 2});
  const ScaleLossResult rms = scale_loss(h, NormKind::rms, 0.0, 1.0, 0.5);
  const double s = std::sqrt(12.5);
  CHECK(rms.sums.to_doubles()[0] == doctest::Approx(s + 0 + 1));
  CHECK(rms.sums.to_doubles()[1] == doctest::Approx(s));
  CHECK(rms.sums.to_doubles()[2] == doctest::Approx((s - 1) * (s - 1) + 1 + 0));
  CHECK(rms.loss.item() == doctest::Approx(0.5 * ((s - 1) * (s - 1) + 1)));
  CHECK(scale_loss(h, NormKind::layer, 0.0, 0.0, 1.0).sums.to_doubles()[0] == doctest::Approx(0.5 + 0 + 1));
  const Tensor bad = Tensor::from(Doubles{1, 1, kNan, 1, 1, 1}, {3, 2});
  for (const double sum : scale_loss(bad, NormKind::rms, 0.0, 1.0, 1.0).sums.to_doubles()) CHECK(std::isnan(sum));
}

TEST_CASE("scale loss: the radial part of a gradient") {
  const Tensor h = Tensor::from(Doubles{3, 4, 0, 2, 0, 0}, {3, 2});
  const Tensor dh = Tensor::from(Doubles{1, 1, 5, -3, 1, 0}, {3, 2});
  const Tensor sums = Tensor::empty({3}, Dtype::f64);
  kernels::radial_sums(sums, h, dh);
  CHECK(sums.to_doubles()[0] == doctest::Approx(7.0 / 5 - 3));  // a row of zeros has no direction
  CHECK(sums.to_doubles()[1] == doctest::Approx(7.0 / 5 + 3));
  CHECK(sums.to_doubles()[2] == doctest::Approx(std::sqrt(2.0) + std::sqrt(34.0) + 1));
}

TEST_CASE("embedding: a gradient that is added to touches the rows of tokens that occur alone") {
  const Tensor dwte = Tensor::full({50257, 4}, kNan, Dtype::f32);
  for (int i = 0; i < 4; ++i) dwte.data<float>()[50256 * 4 + i] = 1;
  const Tensor tokens = Tensor::from(std::vector<int32_t>{50256, 50256}, {1, 2});
  kernels::embedding_bwd(Accumulator(dwte, true), Accumulator(), Tensor::full({1, 2, 4}, 2, Dtype::f32), tokens);
  CHECK(dwte.rows(50256, 50257).to_doubles() == Doubles{5, 5, 5, 5});
  CHECK(std::isnan(dwte.data<float>()[0]));
  CHECK(std::isnan(dwte.data<float>()[50255 * 4]));
}

}  // namespace
}  // namespace taper
