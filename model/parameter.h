// The named parameters of a model. A parameter has a master, which the optimizer updates and checkpoints hold, and a
// tensor that forward passes read: the master itself, or for matrices in mixed precision a bf16 copy of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace taper {

// What a model computes in. bf16: matrices and activations of products in bf16; masters, gradients, norms and the
// residual stream in f32. f64 exists for checks of gradients.
enum class Precision : uint8_t { f64, f32, bf16 };

const char* to_string(Precision precision);

inline Dtype master_dtype(Precision precision) { return precision == Precision::f64 ? Dtype::f64 : Dtype::f32; }
inline Dtype product_dtype(Precision precision) {
  return precision == Precision::bf16 ? Dtype::bf16 : master_dtype(precision);
}

struct Parameter {
  std::string name;  // "h.0.attn.qkv.weight"
  Tensor master;     // f32 (f64 in f64)
  Tensor compute;    // what ops read, and the leaf that collects the gradient; shares the master's memory or is bf16
  bool is_decayed = false;  // by AdamW: matrices, embeddings included
  bool is_trained = true;   // c of the tapered norms is not
  double initial_mean = 0;
  double initial_deviation = 0;

  bool has_copy() const { return !compute.shares_storage(master); }
  // After the master was written by anything but the optimizer.
  void refresh_copy() const {
    if (has_copy()) compute.copy_from(master);
  }
  // Every handle of the two follows. Gradients are dropped.
  void move_to(Device device) const;
};

inline constexpr double kInitialDeviation = 0.02;

// The list that the parts of a model add their parameters to, in the order of the network. A parameter's place in it
// is also its stream of random numbers, so a model's start depends on the seed alone.
class ParameterList {
 public:
  explicit ParameterList(Precision precision) : precision_(precision) {}

  // Each returns the tensor to compute with. Values are left unset.
  Tensor add_matrix(const std::string& name, const Shape& shape, double deviation);
  Tensor add_vector(const std::string& name, int64_t size, double mean);
  Tensor add_constant(const std::string& name, const Shape& shape, double value);  // not trained

  // Independent of the number of threads.
  void initialise(uint64_t seed);

  Precision precision() const { return precision_; }
  const std::vector<Parameter>& all() const { return all_; }
  const Parameter* find(const std::string& name) const;
  void remove(const std::string& name);

 private:
  Tensor add(const std::string& name, const Shape& shape, bool is_matrix);

  Precision precision_;
  std::vector<Parameter> all_;
};

}  // namespace taper
