// Elements of each type as kernels of one instruction set see them: what to compute in, and a choice by Dtype.
#pragma once

#include <type_traits>

#include "engine/core/dtype.h"

#ifndef TAPER_ISA
#define TAPER_ISA base
#endif

namespace taper::cpu::TAPER_ISA {
namespace {

// bf16 is stored, never computed in; 32-bit integers keep their values in double.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, float>, float, double>;

template <class To, class From>
inline To convert_to(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bf16> || std::is_same_v<From, bf16>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class T>
struct Type {
  using type = T;
};

// body(Type<T>) for the element type named at run time.
template <class Body>
inline void with_float_type(Dtype dtype, Body&& body) {
  if (dtype == Dtype::f64) return body(Type<double>());
  if (dtype == Dtype::bf16) return body(Type<bf16>());
  body(Type<float>());
}

template <class Body>
inline void with_type(Dtype dtype, Body&& body) {
  if (dtype == Dtype::i32) return body(Type<int32_t>());
  with_float_type(dtype, body);
}

}  // namespace
}  // namespace taper::cpu::TAPER_ISA
