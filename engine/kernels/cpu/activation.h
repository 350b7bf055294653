// Activations of linear layers and their derivatives.
#pragma once

#include <cmath>

#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

inline double exponential(double x) { return std::exp(x); }

// Cephes' expf: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; without branches, so that loops vectorise.
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

template <Activation act, class F>
inline F activate(F x) {
  if constexpr (act == Activation::relu) return x > 0 ? x : F(0);
  if constexpr (act == Activation::gelu_tanh) {
    const F u = F(1.5957691216057308) * (x + F(0.044715) * x * x * x);
    return x / (F(1) + exponential(-u));
  }
  if constexpr (act == Activation::gelu_erf) return F(0.5) * x * (F(1) + std::erf(x * F(0.7071067811865476)));
  return x;
}

template <Activation act, class F>
inline F activation_slope(F x) {
  if constexpr (act == Activation::relu) return x > 0 ? F(1) : F(0);
  if constexpr (act == Activation::gelu_tanh) {
    const F u = F(1.5957691216057308) * (x + F(0.044715) * x * x * x);
    const F du = F(1.5957691216057308) * (F(1) + F(3 * 0.044715) * x * x);
    const F s = F(1) / (F(1) + exponential(-u));
    return s + x * s * (F(1) - s) * du;
  }
  if constexpr (act == Activation::gelu_erf) {
    return F(0.5) * (F(1) + std::erf(x * F(0.7071067811865476))) +
           x * F(0.3989422804014327) * exponential(F(-0.5) * x * x);
  }
  return F(1);
}

template <Activation act>
struct ActivationTag {
  static constexpr Activation value = act;
};

// body(ActivationTag<act>) for the activation named at run time.
template <class Body>
inline void with_activation(Activation act, Body&& body) {
  switch (act) {
    case Activation::none:
      return body(ActivationTag<Activation::none>());
    case Activation::gelu_tanh:
      return body(ActivationTag<Activation::gelu_tanh>());
    case Activation::gelu_erf:
      return body(ActivationTag<Activation::gelu_erf>());
    case Activation::relu:
      return body(ActivationTag<Activation::relu>());
  }
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
