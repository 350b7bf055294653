// What both directions of the tapered norm share. A row is read from memory once and stays in the first-level cache for
// the passes over it. Formulas: engine/ops/norm.cpp. C is what is computed in, H the residual stream's type.
#pragma once

#include "engine/kernels/cpu/element.h"
#include "engine/kernels/kernels.h"

namespace taper::cpu::TAPER_ISA {
namespace {

// What the options decide, decided outside the loops.
template <NormKind kKind, bool kNormBranch, bool kScaleBranch>
struct Form {
  static constexpr bool kCentres = kKind == NormKind::layer;
  static constexpr bool kNorm = kNormBranch;    // gate > 0
  static constexpr bool kScale = kScaleBranch;  // gate < 1
};

template <NormKind kKind, class Body>
void with_form(double gate, Body&& body) {
  if (gate >= 1) return body(Form<kKind, true, false>());
  if (gate <= 0) return body(Form<kKind, false, true>());
  body(Form<kKind, true, true>());
}

template <class Body>
void with_form(const NormOptions& options, Body&& body) {
  if (options.kind == NormKind::layer) return with_form<NormKind::layer>(options.gate, body);
  with_form<NormKind::rms>(options.gate, body);
}

// The parameters and scalars of one call.
template <class C>
struct Parameters {
  const C* gamma;
  const C* beta;
  const C* gamma_tilde;
  const C* beta_tilde;
  C gate;   // g
  C rest;   // 1 - g
  C scale;  // (1 - g) c
  C eps;
};

template <class F, class C>
Parameters<C> parameters_of(In gamma, In beta, In gamma_tilde, In beta_tilde, In c, const NormOptions& options) {
  Parameters<C> p{gamma.as<C>(), beta.as<C>(), gamma_tilde.as<C>(), beta_tilde.as<C>(), C(1), C(0), C(0), C(0)};
  p.gate = static_cast<C>(options.gate);
  p.rest = static_cast<C>(1 - options.gate);
  if constexpr (F::kScale) p.scale = p.rest * *c.as<C>();
  p.eps = static_cast<C>(options.eps);
  return p;
}

// body(Type<T>) for a branch or result beside a residual stream of type H: f64 goes with f64 alone.
template <class H, class Body>
void with_companion(Dtype dtype, Body&& body) {
  if constexpr (std::is_same_v<H, double>) {
    body(Type<double>());
  } else {
    if (dtype == Dtype::bf16) return body(Type<bf16>());
    body(Type<float>());
  }
}

// body(form, Type<H>, Type<T>) for a residual stream of one dtype and what goes with it of another.
template <class Body>
void with_form_and_types(const NormOptions& options, Dtype stream, Dtype companion, Body&& body) {
  with_float_type(stream, [&](auto type) {
    with_companion<typename decltype(type)::type>(companion, [&](auto companion_type) {
      with_form(options, [&](auto form) { body(form, type, companion_type); });
    });
  });
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
