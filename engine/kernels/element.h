// Elements of each type as kernels see them: what to compute in, and choices made once by Dtype or flag instead of for
// each element. The same text for every instruction set and for the device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/core/dtype.h"
#include "engine/kernels/target.h"

namespace TAPER_KERNEL_NAMESPACE {
namespace {

// bf16 is stored, never computed in; 32-bit integers keep their values in double.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, float>, float, double>;

template <class To, class From>
TAPER_HD inline To convert_to(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bf16>) {
    return TAPER_ROUND_TO_BF16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, bf16>) {
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

// body(Type<T>, Type<G>) for activations T and their gradient G: f32 or bf16 for bf16 (a leaf collects in f32), else T.
template <class Body>
inline void with_grad_type(Dtype dtype, Dtype grad_dtype, Body&& body) {
  with_float_type(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, bf16>) {
      if (grad_dtype == Dtype::f32) return body(type, Type<float>());
    }
    body(type, type);
  });
}

// body(Type<T>, Type<Y>) for operands T and a result Y in mixed precision: f64 for f64, else bf16 or f32 each.
template <class Body>
inline void with_result_type(Dtype dtype, Dtype result_dtype, Body&& body) {
  with_float_type(dtype, [&](auto type) {
    if constexpr (std::is_same_v<typename decltype(type)::type, double>) {
      body(type, type);
    } else if (result_dtype == Dtype::bf16) {
      body(type, Type<bf16>());
    } else {
      body(type, Type<float>());
    }
  });
}

// body(std::true_type or std::false_type): what a flag decides is decided outside the loop.
template <class Body>
inline void with_flag(bool flag, Body&& body) {
  if (flag) return body(std::true_type());
  body(std::false_type());
}

// target = value, or += value.
template <bool kAdd, class G, class C>
TAPER_HD inline void put(G& target, C value) {
  if constexpr (kAdd) value += convert_to<C>(target);
  target = convert_to<G>(value);
}

}  // namespace
}  // namespace TAPER_KERNEL_NAMESPACE
