// The scalar mathematics of pointwise ops, once for the host and the device: each function's value with its derivative
// beside it.
//
// Doubles go through the C library. Floats are free of branches and of calls, so that loops over them vectorise: at
// most 2 units in the last place for exp, tanh and erf (tests/test_scalar_math.cpp measures it), right at infinities
// and NaN. Smooth activations and their derivatives: 5e-7 * max(1, |x|). Results below 2^-126 may be zero. The
// polynomials are minimax fits of our own: e^r = 1 + r + r^2 p(r) on |r| <= ln(2) / 2, tanh(x) / x = 1 + s p(s) and
// erf(x) / x = 1 + p(s) with s = x^2 near zero, ln(erfc(x)) = p(x) further out.
//
// All of it lives in the namespace of the target being compiled, so that versions for two never merge.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/kernels/kernels.h"
#include "engine/kernels/target.h"

namespace TAPER_KERNEL_NAMESPACE::math {

// NaN passes both.
template <class T>
TAPER_HD inline T at_least(T low, T x) {
  return x < low ? low : x;
}
template <class T>
TAPER_HD inline T clamp(T x, T low, T high) {
  x = at_least(low, x);
  return x > high ? high : x;
}

// 2^n for -126 <= n <= 127.
TAPER_HD inline float power_of_two(int32_t n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

TAPER_HD inline float exp(float x) {
  x = clamp(x, -104.0f, 89.0f);  // beyond, the result is 0 or infinite
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kShift = 12582912.0f;
  constexpr uint32_t kShiftBits = 0x4b400000u;
  const float shifted = x * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln(2) in two pieces
  float p = 0.00138131445f;
  p = p * r + 0.00836941883f;
  p = p * r + 0.0416684568f;
  p = p * r + 0.166665148f;
  p = p * r + 0.499999931f;
  const float mantissa = (r * r) * p + r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, 4);
  const int32_t exponent = static_cast<int32_t>(bits - kShiftBits);
  // In two steps: 2^n itself leaves the range of normal numbers near both ends.
  const int32_t half = exponent >> 1;
  return mantissa * power_of_two(half) * power_of_two(exponent - half);
}

TAPER_HD inline float tanh(float x) {
  const float magnitude = std::fabs(x);
  const float s = x * x;
  float p = -0.00567931253f;
  p = p * s + 0.0206181305f;
  p = p * s - 0.0537340027f;
  p = p * s + 0.133313837f;
  p = p * s - 0.333332802f;
  const float near_zero = magnitude * (s * p) + magnitude;
  const float far = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? near_zero : far, x);
}

TAPER_HD inline float erf(float x) {
  const float magnitude = std::fabs(x);
  const float s = x * x;
  float p = -0.000609036024f;
  p = p * s + 0.00501196287f;
  p = p * s - 0.026778909f;
  p = p * s + 0.112821408f;
  p = p * s - 0.376125233f;
  p = p * s + 0.128379154f;
  const float near_zero = magnitude * p + magnitude;
  const float t = clamp(magnitude, 0.0f, 4.1f);  // beyond, 1 to the last bit
  float q = 0.000203676388f;
  q = q * t - 0.00311785128f;
  q = q * t + 0.022519045f;
  q = q * t - 0.104525914f;
  q = q * t - 0.636518953f;
  q = q * t - 1.128061f;
  q = q * t - 0.000104526399f;
  const float far = 1.0f - exp(q);
  return std::copysign(magnitude < 0.875f ? near_zero : far, x);
}

TAPER_HD inline double exp(double x) { return std::exp(x); }
TAPER_HD inline double tanh(double x) { return std::tanh(x); }
TAPER_HD inline double erf(double x) { return std::erf(x); }

template <class T>
TAPER_HD inline T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

struct Negate {
  template <class T>
  TAPER_HD static T value(T x) {
    return -x;
  }
  template <class T>
  TAPER_HD static T slope(T) {
    return T(-1);
  }
};

struct Exp {
  template <class T>
  TAPER_HD static T value(T x) {
    return exp(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return exp(x);
  }
};

struct Log {
  template <class T>
  TAPER_HD static T value(T x) {
    return std::log(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(1) / x;
  }
};

struct Sqrt {
  template <class T>
  TAPER_HD static T value(T x) {
    return std::sqrt(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(0.5) / std::sqrt(x);
  }
};

struct Reciprocal {
  template <class T>
  TAPER_HD static T value(T x) {
    return T(1) / x;
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(-1) / (x * x);
  }
};

struct Square {
  template <class T>
  TAPER_HD static T value(T x) {
    return x * x;
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(2) * x;
  }
};

struct Abs {
  template <class T>
  TAPER_HD static T value(T x) {
    return std::fabs(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(x > T(0)) - T(x < T(0));
  }
};

struct Tanh {
  template <class T>
  TAPER_HD static T value(T x) {
    return tanh(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    const T y = tanh(x);
    return T(1) - y * y;
  }
};

// x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): Hendrycks and Gimpel, arXiv 1606.08415.
struct GeluTanh {
  template <class T>
  TAPER_HD static T value(T x) {
    x = at_least(T(-64), x);  // -inf * 0 would be NaN
    return x * sigmoid(x * (T(kLinear) + T(kCubic) * (x * x)));
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    x = clamp(x, T(-64), T(64));
    const T square = x * x;
    const T s = sigmoid(x * (T(kLinear) + T(kCubic) * square));
    return s + x * (s * (T(1) - s)) * (T(kLinear) + T(3 * kCubic) * square);
  }

 private:
  static constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715 * kLinear;
};

// x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2.
struct GeluErf {
  template <class T>
  TAPER_HD static T value(T x) {
    x = at_least(T(-64), x);
    return x * phi(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    x = clamp(x, T(-64), T(64));
    return phi(x) + x * (T(kDensity) * exp(T(-0.5) * (x * x)));
  }

 private:
  static constexpr double kDensity = 0.3989422804014327;  // 1 / sqrt(2 pi)
  template <class T>
  TAPER_HD static T phi(T x) {
    return T(0.5) + T(0.5) * erf(x * T(0.7071067811865476));
  }
};

struct Relu {
  template <class T>
  TAPER_HD static T value(T x) {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    return T(x > T(0));
  }
};

// x sigmoid(x).
struct Silu {
  template <class T>
  TAPER_HD static T value(T x) {
    x = at_least(T(-1000), x);
    return x * sigmoid(x);
  }
  template <class T>
  TAPER_HD static T slope(T x) {
    x = clamp(x, T(-1000), T(1000));
    const T s = sigmoid(x);
    return s + x * (s * (T(1) - s));
  }
};

struct Add {
  template <class C>
  TAPER_HD static C value(C a, C b) {
    return a + b;
  }
};
struct Subtract {
  template <class C>
  TAPER_HD static C value(C a, C b) {
    return a - b;
  }
};
struct Multiply {
  template <class C>
  TAPER_HD static C value(C a, C b) {
    return a * b;
  }
};
struct Divide {
  template <class C>
  TAPER_HD static C value(C a, C b) {
    return a / b;
  }
};

// body(F()) for the function named at run time: one loop for each, instead of a choice for each element.
template <class Body>
inline void with_function(Unary function, Body&& body) {
  switch (function) {
    case Unary::negate:
      return body(Negate());
    case Unary::exp:
      return body(Exp());
    case Unary::log:
      return body(Log());
    case Unary::sqrt:
      return body(Sqrt());
    case Unary::reciprocal:
      return body(Reciprocal());
    case Unary::square:
      return body(Square());
    case Unary::abs:
      return body(Abs());
    case Unary::tanh:
      return body(Tanh());
    case Unary::gelu_tanh:
      return body(GeluTanh());
    case Unary::gelu_erf:
      return body(GeluErf());
    case Unary::relu:
      return body(Relu());
    case Unary::silu:
      return body(Silu());
  }
}

// The same for arithmetic.
template <class Body>
inline void with_function(Binary function, Body&& body) {
  switch (function) {
    case Binary::add:
      return body(Add());
    case Binary::subtract:
      return body(Subtract());
    case Binary::multiply:
      return body(Multiply());
    case Binary::divide:
      return body(Divide());
  }
}

// The same for what follows a product; not for Activation::none.
template <class Body>
inline void with_function(Activation act, Body&& body) {
  switch (act) {
    case Activation::none:
      return;
    case Activation::gelu_tanh:
      return body(GeluTanh());
    case Activation::gelu_erf:
      return body(GeluErf());
    case Activation::relu:
      return body(Relu());
  }
}

// The scalars of AdamW's next update (kernels.h, plan_update).
struct Update {
  const double* squares;
  int64_t square_count;
  const double* losses;
  int64_t loss_count;
  double max_norm, beta1, beta2;

  TAPER_HD void plan(double* scalars, double learning_rate) const {
    double sum = 0;
    bool is_finite = true;
    for (int64_t i = 0; i < square_count; ++i) {
      sum += squares[i];
      is_finite = is_finite && isfinite(squares[i]);
    }
    for (int64_t i = 0; i < loss_count; ++i) is_finite = is_finite && isfinite(losses[i]);
    const double norm = ::sqrt(sum);
    scalars[kLearningRate] = learning_rate;
    scalars[kClipFactor] = !is_finite ? 0.0 : norm > max_norm ? max_norm / norm : 1.0;
    if (is_finite) scalars[kUpdates] += 1;
    scalars[kCorrection1] = 1 - ::pow(beta1, scalars[kUpdates]);
    scalars[kCorrection2] = 1 - ::pow(beta2, scalars[kUpdates]);
  }

 private:
  TAPER_HD static bool isfinite(double x) { return x - x == 0; }
};

}  // namespace TAPER_KERNEL_NAMESPACE::math
