// A matrix product as the backends of both devices are asked for it: c = a b (+ c) (+ bias).
#pragma once

#include "engine/kernels/kernels.h"

namespace taper {

// A row-major matrix in memory, `stride` elements from one row to the next. is_transposed: the product reads it as its
// transpose.
struct Operand {
  const void* data = nullptr;
  int64_t stride = 0;
  bool is_transposed = false;
};

// c [m, n] = a [m, k] b [k, n]; a and b are of one type, sums are f32 (f64 for f64). c is f64 for f64, else f32 or
// bf16.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::f32;  // of a and b
  Operand a, b;
  void* c = nullptr;
  int64_t c_stride = 0;
  Dtype c_dtype = Dtype::f32;
  bool adds = false;           // to what c holds
  const void* bias = nullptr;  // [n], f32 (f64 for f64), added to every row; never together with `adds`
  // act(c) goes here, rows as in c; it may be c. Present with every act but none.
  void* activated = nullptr;
  Activation act = Activation::none;

  // Rows [begin, end) of c alone.
  Gemm rows(int64_t begin, int64_t end) const {
    Gemm part = *this;
    part.m = end - begin;
    part.a.data = static_cast<const char*>(a.data) + (a.is_transposed ? begin : begin * a.stride) * size_of(dtype);
    part.c = static_cast<char*>(c) + begin * c_stride * size_of(c_dtype);
    if (activated) part.activated = static_cast<char*>(activated) + begin * c_stride * size_of(c_dtype);
    return part;
  }
  // Columns [begin, end) of c alone.
  Gemm columns(int64_t begin, int64_t end) const {
    Gemm part = *this;
    part.n = end - begin;
    part.b.data = static_cast<const char*>(b.data) + (b.is_transposed ? begin * b.stride : begin) * size_of(dtype);
    part.c = static_cast<char*>(c) + begin * size_of(c_dtype);
    if (activated) part.activated = static_cast<char*>(activated) + begin * size_of(c_dtype);
    if (bias) part.bias = static_cast<const char*>(bias) + begin * size_of(dtype == Dtype::f64 ? dtype : Dtype::f32);
    return part;
  }
};

// What the kernels matmul and linear_fwd ask for (engine/kernels/kernels.h).
inline Gemm matmul_gemm(Acc c, In a, In b, MatmulOptions options) {
  Gemm g;
  g.m = c.rows();
  g.k = options.transpose_a ? a.rows() : a.cols();
  g.n = c.cols();
  g.dtype = a.dtype;
  g.a = {a.data, a.cols(), options.transpose_a};
  g.b = {b.data, b.cols(), options.transpose_b};
  g.c = c.data;
  g.c_stride = c.cols();
  g.c_dtype = c.dtype;
  g.adds = c.add;
  return g;
}

inline Gemm linear_gemm(Out y, Out pre, In x, In w, In bias, Activation act) {
  Gemm g = matmul_gemm({pre ? pre : y, false}, x, w, {false, true});
  g.bias = bias.data;
  if (act != Activation::none) {
    g.act = act;
    g.activated = y.data;
  }
  return g;
}

}  // namespace taper
