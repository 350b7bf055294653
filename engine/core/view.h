// What a kernel sees of a tensor: a pointer, a shape, an element type. Plain data, so that kernels compile for any
// instruction set and for the device without the tensor class. A kernel's parameters, outputs first:
//   Out  written, whatever it held before
//   Acc  a gradient: written when `add` is false, added to when it is true
//   In   read
// An optional parameter is absent when it converts to false.
#pragma once

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/shape.h"

namespace taper {

struct View {
  void* data = nullptr;
  Shape shape;
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;

  explicit operator bool() const { return data != nullptr; }
  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.last(); }
  int64_t numel() const { return shape.numel(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct ConstView {
  const void* data = nullptr;
  Shape shape;
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;

  ConstView() = default;
  ConstView(const View& v) : data(v.data), shape(v.shape), dtype(v.dtype), device(v.device) {}
  explicit operator bool() const { return data != nullptr; }
  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.last(); }
  int64_t numel() const { return shape.numel(); }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

struct Accumulator : View {
  bool add = false;

  Accumulator() = default;
  Accumulator(const View& v, bool add_) : View(v), add(add_) {}
};

using Out = const View&;
using Acc = const Accumulator&;
using In = const ConstView&;

}  // namespace taper
