#include "model/parameter.h"

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/kernels/kernels.h"

namespace taper {
namespace {

template <class T>
void fill_normal(T* values, int64_t n, const Random& random, double mean, double deviation) {
  parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = static_cast<T>(mean + deviation * random.normal_at(static_cast<uint64_t>(i)));
    }
  });
}

}  // namespace

const char* to_string(Precision precision) {
  return precision == Precision::f64 ? "f64" : precision == Precision::f32 ? "f32" : "bf16";
}

void Parameter::move_to(Device device) const {
  const bool copies = has_copy();
  const Tensor moved = master.to(device);
  compute.take_memory_of(copies ? compute.to(device) : moved);
  master.take_memory_of(moved);
}

Tensor ParameterList::add(const std::string& name, const Shape& shape, bool is_matrix) {
  require(find(name) == nullptr, "parameters: {} is there twice", name);
  Parameter parameter;
  parameter.name = name;
  parameter.master = Tensor::empty(shape, master_dtype(precision_), Device::cpu, name.c_str());
  // A tensor of its own even where it shares the memory: the leaf that collects the gradient.
  parameter.compute = is_matrix && precision_ == Precision::bf16
                          ? Tensor::empty(shape, Dtype::bf16, Device::cpu, name.c_str())
                          : parameter.master.detached();
  parameter.compute.set_requires_grad();
  parameter.is_decayed = is_matrix;
  all_.push_back(std::move(parameter));
  return all_.back().compute;
}

Tensor ParameterList::add_matrix(const std::string& name, const Shape& shape, double deviation) {
  const Tensor compute = add(name, shape, true);
  all_.back().initial_deviation = deviation;
  return compute;
}

Tensor ParameterList::add_vector(const std::string& name, int64_t size, double mean) {
  const Tensor compute = add(name, {size}, false);
  all_.back().initial_mean = mean;
  return compute;
}

Tensor ParameterList::add_constant(const std::string& name, const Shape& shape, double value) {
  Tensor compute = add(name, shape, false);
  compute.set_requires_grad(false);
  all_.back().is_trained = false;
  all_.back().initial_mean = value;
  return compute;
}

void ParameterList::initialise(uint64_t seed) {
  for (size_t i = 0; i < all_.size(); ++i) {
    const Parameter& p = all_[i];
    if (p.initial_deviation == 0) {
      kernels::fill(p.master, p.initial_mean);
    } else {
      const Random random(seed, RandomStream::initialisation, static_cast<uint32_t>(i));
      if (p.master.dtype() == Dtype::f64) {
        fill_normal(p.master.data<double>(), p.master.numel(), random, p.initial_mean, p.initial_deviation);
      } else {
        fill_normal(p.master.data<float>(), p.master.numel(), random, p.initial_mean, p.initial_deviation);
      }
    }
    p.refresh_copy();
  }
}

const Parameter* ParameterList::find(const std::string& name) const {
  for (const Parameter& p : all_) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

void ParameterList::remove(const std::string& name) {
  std::erase_if(all_, [&](const Parameter& p) { return p.name == name; });
}

}  // namespace taper
