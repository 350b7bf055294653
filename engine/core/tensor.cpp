#include "engine/core/tensor.h"

#include <cstring>

#include "engine/core/allocator.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"

namespace taper {
namespace {

// Calls body(T{}) with the element type.
template <class Body>
void visit(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::f64:
      return body(double{});
    case Dtype::f32:
      return body(float{});
    case Dtype::bf16:
      return body(bf16{});
    case Dtype::i32:
      return body(int32_t{});
  }
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

void require_defined(const Tensor& tensor, const char* what) {
  require(tensor.is_defined(), "{}: the tensor is undefined", what);
}

void require_host(const Tensor& tensor, const char* what) {
  require(tensor.device() == Device::cpu, "{}: the tensor is on {}, want cpu", what, to_string(tensor.device()));
}

// Where the device has a part in it. The host casts what crosses between the two.
void copy_across(const Tensor& to, const Tensor& from) {
  const bool casts = to.dtype() != from.dtype();
  if (to.numel() == 0) return;
  if (to.device() == from.device()) {
    if (casts) return cuda_runtime().convert(to, from);
    return cuda_runtime().copy_on_device(to.raw(), from.raw(), to.bytes());
  }
  if (casts && from.device() == Device::cpu) return copy_across(to, from.cast(to.dtype()));
  if (casts) return to.copy_from(from.to(Device::cpu));
  if (to.device() == Device::cpu) return cuda_runtime().copy_to_host(to.raw(), from.raw(), to.bytes());
  cuda_runtime().copy_to_device(to.raw(), from.raw(), to.bytes());
}

}  // namespace

const char* to_string(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device, const char* what) {
  auto impl = std::make_shared<Impl>();
  const int64_t bytes = checked_product(shape.numel(), size_of(dtype), what);
  impl->storage =
      std::shared_ptr<void>(allocate(bytes, what, device), [device](void* block) { release(block, device); });
  impl->data = static_cast<char*>(impl->storage.get());
  impl->shape = shape;
  impl->dtype = dtype;
  impl->device = device;
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(const Shape& shape, Dtype dtype, Device device, const char* what) {
  Tensor result = empty(shape, dtype, device, what);
  if (device == Device::cpu) {
    std::memset(result.raw(), 0, static_cast<size_t>(result.bytes()));
  } else if (result.bytes() > 0) {
    cuda_runtime().fill_bytes(result.raw(), 0, result.bytes());
  }
  return result;
}

Tensor Tensor::full(const Shape& shape, double value, Dtype dtype, Device device) {
  Tensor result = empty(shape, dtype);
  visit(dtype, [&](auto tag) {
    using T = decltype(tag);
    std::fill_n(result.data<T>(), result.numel(), from_double<T>(value));
  });
  return result.to(device);
}

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  require(static_cast<int64_t>(values.size()) == shape.numel(), "tensor: got {} values for shape {}", values.size(),
          to_string(shape));
  Tensor result = empty(shape, DtypeOf<T>::value);
  if (!values.empty()) std::memcpy(result.raw(), values.data(), values.size() * sizeof(T));
  return result;
}
template Tensor Tensor::from<double>(const std::vector<double>&, const Shape&);
template Tensor Tensor::from<float>(const std::vector<float>&, const Shape&);
template Tensor Tensor::from<bf16>(const std::vector<bf16>&, const Shape&);
template Tensor Tensor::from<int32_t>(const std::vector<int32_t>&, const Shape&);

const Shape& Tensor::shape() const {
  require_defined(*this, "shape");
  return impl_->shape;
}
Dtype Tensor::dtype() const {
  require_defined(*this, "dtype");
  return impl_->dtype;
}
Device Tensor::device() const {
  require_defined(*this, "device");
  return impl_->device;
}
void* Tensor::raw() const {
  require_defined(*this, "data");
  return impl_->data;
}

template <class T>
T* Tensor::data() const {
  require_host(*this, "data");
  require(dtype() == DtypeOf<T>::value, "data: the tensor holds {}, asked for {}", to_string(dtype()),
          to_string(DtypeOf<T>::value));
  return static_cast<T*>(raw());
}
template double* Tensor::data<double>() const;
template float* Tensor::data<float>() const;
template bf16* Tensor::data<bf16>() const;
template int32_t* Tensor::data<int32_t>() const;

Tensor::operator View() const {
  View view;
  if (!impl_) return view;
  view.data = impl_->data;
  view.shape = impl_->shape;
  view.dtype = impl_->dtype;
  view.device = impl_->device;
  return view;
}

Tensor Tensor::detached() const {
  require_defined(*this, "detached");
  auto impl = std::make_shared<Impl>();
  impl->storage = impl_->storage;
  impl->data = impl_->data;
  impl->shape = impl_->shape;
  impl->dtype = impl_->dtype;
  impl->device = impl_->device;
  return Tensor(std::move(impl));
}

Tensor Tensor::reshaped(const Shape& shape) const {
  require(shape.numel() == numel(), "reshape: got {}, want the number of elements of {}", to_string(shape),
          to_string(this->shape()));
  Tensor result = detached();
  result.impl_->shape = shape;
  return result;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  const Shape& whole = shape();
  require(whole.rank >= 1 && 0 <= begin && begin <= end && end <= whole[0], "rows: got [{}, {}), the tensor is {}",
          begin, end, to_string(whole));
  const int64_t row_bytes = whole[0] == 0 ? 0 : bytes() / whole[0];
  Tensor result = detached();
  result.impl_->data += begin * row_bytes;
  result.impl_->shape.dims[0] = end - begin;
  return result;
}

Tensor Tensor::clone() const { return cast(dtype()); }

Tensor Tensor::cast(Dtype dtype) const {
  Tensor result = empty(shape(), dtype, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(Device device) const {
  if (this->device() == device) return *this;
  Tensor result = empty(shape(), dtype(), device);
  result.copy_from(*this);
  return result;
}

void Tensor::take_memory_of(const Tensor& source) const {
  require(!impl_->node, "take_memory_of: the tensor is computed from others, want a leaf");
  require(shape() == source.shape() && dtype() == source.dtype(), "take_memory_of: got {}, want {}", describe(source),
          describe(*this));
  impl_->storage = source.impl_->storage;
  impl_->data = source.impl_->data;
  impl_->device = source.device();
  impl_->grad = Tensor();
  impl_->grad_is_set = false;
}

void Tensor::copy_from(const Tensor& source) const {
  require(shape() == source.shape(), "copy: got {}, want {}", to_string(source.shape()), to_string(shape()));
  if (device() != Device::cpu || source.device() != Device::cpu) return copy_across(*this, source);
  if (dtype() == source.dtype()) {
    std::memmove(raw(), source.raw(), static_cast<size_t>(bytes()));
    return;
  }
  visit(dtype(), [&](auto to_tag) {
    using To = decltype(to_tag);
    visit(source.dtype(), [&](auto from_tag) {
      using From = decltype(from_tag);
      To* to = data<To>();
      const From* from = source.data<From>();
      const int64_t n = numel();
      for (int64_t i = 0; i < n; ++i) to[i] = from_double<To>(as_double(from[i]));
    });
  });
}

double Tensor::item() const {
  require(numel() == 1, "item: the tensor is {}, want one element", to_string(shape()));
  return to_doubles()[0];
}

std::vector<double> Tensor::to_doubles() const {
  if (device() != Device::cpu) return to(Device::cpu).to_doubles();
  std::vector<double> result(static_cast<size_t>(numel()));
  visit(dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* values = data<T>();
    for (size_t i = 0; i < result.size(); ++i) result[i] = as_double(values[i]);
  });
  return result;
}

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  require_defined(*this, "set_requires_grad");
  require(!impl_->node, "set_requires_grad: the tensor is computed from others, want a leaf");
  impl_->is_leaf_with_grad = requires_grad;
  return *this;
}

bool Tensor::requires_grad() const { return impl_ && (impl_->is_leaf_with_grad || impl_->node); }

Tensor Tensor::grad() const {
  require_defined(*this, "grad");
  return impl_->grad_is_set ? impl_->grad : Tensor();
}

void Tensor::zero_grad() const {
  require_defined(*this, "zero_grad");
  impl_->grad_is_set = false;
}

void Tensor::drop_grad() const {
  zero_grad();
  impl_->grad = {};
}

void Tensor::set_retain_grad(bool retain) const {
  require_defined(*this, "set_retain_grad");
  impl_->retains_grad = retain;
}

bool Tensor::shares_storage(const Tensor& other) const {
  return impl_ && other.impl_ && impl_->storage == other.impl_->storage;
}

bool Tensor::has_sole_storage() const { return impl_ && impl_->storage.use_count() == 1; }

std::string describe(const Tensor& tensor) {
  if (!tensor) return "nothing";
  return std::string(to_string(tensor.dtype())) + " " + to_string(tensor.shape());
}

}  // namespace taper
