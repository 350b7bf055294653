// The float functions of engine/kernels/scalar_math.h against the C library's doubles, in the arithmetic of every
// instruction set that this processor has.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scalar_math.h"

namespace taper {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Floats over [low, high], then both ends and numbers near zero.
std::vector<float> grid(double low, double high) {
  std::vector<float> points;
  constexpr int kPoints = 200000;
  for (int i = 0; i <= kPoints; ++i) points.push_back(static_cast<float>(low + (high - low) * i / kPoints));
  for (float tiny = 1; tiny > 1e-30f; tiny /= 3) {
    points.push_back(tiny);
    points.push_back(-tiny);
  }
  return points;
}

double units_in_last_place(float got, double want) {
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  return std::fabs(got - want) / spacing;
}

template <class Float, class Double>
double greatest_error(Float got, Double want, double low, double high) {
  double greatest = 0;
  for (const float x : grid(low, high)) {
    const double exact = want(static_cast<double>(x));
    if (std::fabs(exact) < 0x1p-126 || std::fabs(exact) > 0x1.fffffep127) continue;
    greatest = std::max(greatest, units_in_last_place(got(x), exact));
  }
  return greatest;
}

// Of a kernel's results over a grid, relative to max(1, |x|).
double greatest_kernel_error(Unary function, bool is_slope) {
  const std::vector<float> points = grid(-30, 30);
  const Shape shape{static_cast<int64_t>(points.size())};
  const Tensor x = Tensor::from(points, shape);
  const Tensor y = Tensor::empty(shape, Dtype::f32);
  const Tensor x64 = x.cast(Dtype::f64), y64 = Tensor::empty(shape, Dtype::f64);
  if (is_slope) {
    kernels::unary_bwd(Accumulator(y, false), Tensor::full(shape, 1, Dtype::f32), x, function);
    kernels::unary_bwd(Accumulator(y64, false), Tensor::full(shape, 1, Dtype::f64), x64, function);
  } else {
    kernels::unary_fwd(y, x, function);
    kernels::unary_fwd(y64, x64, function);
  }
  double greatest = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double error = std::fabs(y.data<float>()[i] - y64.data<double>()[i]);
    greatest = std::max(greatest, error / std::max(1.0, std::fabs(static_cast<double>(points[i]))));
  }
  return greatest;
}

std::vector<double> of(Unary function, const std::vector<double>& values, Dtype dtype) {
  const Tensor x = Tensor::from(values, {static_cast<int64_t>(values.size())}).cast(dtype);
  const Tensor y = Tensor::empty(x.shape(), dtype);
  kernels::unary_fwd(y, x, function);
  return y.to_doubles();
}

TEST_CASE("scalar math: exp, tanh and erf in float are within 2 units in the last place") {
  namespace math = cpu::base::math;
  using std::exp, std::tanh, std::erf;
  CHECK(greatest_error([](float x) { return math::exp(x); }, [](double x) { return exp(x); }, -87.3, 88.72) < 1.1);
  CHECK(greatest_error([](float x) { return math::tanh(x); }, [](double x) { return tanh(x); }, -10, 10) < 2);
  CHECK(greatest_error([](float x) { return math::erf(x); }, [](double x) { return erf(x); }, -5, 5) < 2);
}

TEST_CASE("scalar math: infinities, NaN, zeros and values far outside") {
  namespace math = cpu::base::math;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(math::exp(infinity) == infinity);
  CHECK(math::exp(-infinity) == 0.0f);
  CHECK(math::exp(89.0f) == infinity);
  CHECK(math::exp(1e30f) == infinity);
  CHECK(math::exp(-1e30f) == 0.0f);
  CHECK(math::exp(0.0f) == 1.0f);
  CHECK(std::isnan(math::exp(nan)));
  CHECK(std::isnan(math::exp(-nan)));
  CHECK(math::exp(-100.0f) == doctest::Approx(std::exp(-100.0)).epsilon(1e-1));  // subnormal
  CHECK(math::tanh(infinity) == 1.0f);
  CHECK(math::tanh(-infinity) == -1.0f);
  CHECK(math::tanh(50.0f) == 1.0f);
  CHECK(std::signbit(math::tanh(-0.0f)));
  CHECK(std::isnan(math::tanh(nan)));
  CHECK(math::erf(infinity) == 1.0f);
  CHECK(math::erf(-6.0f) == -1.0f);
  CHECK(std::signbit(math::erf(-0.0f)));
  CHECK(std::isnan(math::erf(nan)));
}

TEST_CASE("scalar math: activations at the ends") {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    CAPTURE(to_string(dtype));
    for (const Unary f : {Unary::gelu_tanh, Unary::gelu_erf, Unary::silu, Unary::relu}) {
      CAPTURE(static_cast<int>(f));
      const auto y = of(f, {-kInfinity, -1e30, -2000, 0, 64, 1e30, kInfinity, std::nan("")}, dtype);
      CHECK(y[0] == 0);
      CHECK(y[1] == 0);
      CHECK(y[2] == 0);
      CHECK(y[3] == 0);
      CHECK(y[4] == 64);
      CHECK(y[5] == doctest::Approx(1e30).epsilon(1e-2));
      CHECK(y[6] == kInfinity);
      CHECK(std::isnan(y[7]));
      const Tensor x = Tensor::from(std::vector<double>{-kInfinity, -1e30, 1e30, kInfinity}, {4}).cast(dtype);
      const Tensor dx = Tensor::empty({4}, dtype);
      kernels::unary_bwd(Accumulator(dx, false), Tensor::full({4}, 1, dtype), x, f);
      CHECK(dx.to_doubles() == std::vector<double>{0, 0, 1, 1});
    }
  }
}

TEST_CASE("scalar math: the two forms of GELU at known points") {
  const std::vector<double> x = {1, -1, 3, -3, 10};
  const std::vector<double> tanh_form = {0.84119199, -0.15880801, 2.99636261, -0.00363739, 10};
  const std::vector<double> erf_form = {0.84134475, -0.15865525, 2.99595031, -0.00404969, 10};
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    const double tolerance = dtype == Dtype::f64 ? 1e-8 : 3e-7;
    const auto a = of(Unary::gelu_tanh, x, dtype), b = of(Unary::gelu_erf, x, dtype);
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK(std::fabs(a[i] - tanh_form[i]) < tolerance * std::max(1.0, x[i]));
      CHECK(std::fabs(b[i] - erf_form[i]) < tolerance * std::max(1.0, x[i]));
    }
  }
  double greatest = 0, where = 0;
  std::vector<double> fine;
  for (int i = 0; i <= 8000; ++i) fine.push_back(i * 1e-3 - 4);
  const auto a = of(Unary::gelu_tanh, fine, Dtype::f64), b = of(Unary::gelu_erf, fine, Dtype::f64);
  for (size_t i = 0; i < fine.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (difference > greatest) greatest = difference, where = std::fabs(fine[i]);
  }
  CHECK(greatest == doctest::Approx(4.73e-4).epsilon(2e-3));
  CHECK(where == doctest::Approx(2.70).epsilon(1e-2));
}

TEST_CASE("scalar math: vectorised activations and their derivatives in float agree with double") {
  for (const Unary f : {Unary::exp, Unary::tanh, Unary::gelu_tanh, Unary::gelu_erf, Unary::silu}) {
    CAPTURE(static_cast<int>(f));
    if (f != Unary::exp) CHECK(greatest_kernel_error(f, false) < 5e-7);
    if (f != Unary::exp) CHECK(greatest_kernel_error(f, true) < 5e-7);
  }
}

}  // namespace
}  // namespace taper
