// How the tests of ops use a sample: inputs, runs, comparisons (tests/test_ops.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/core/allocator.h"
#include "engine/ops/registry.h"

namespace taper::test {

struct OpRun {
  Tensors outputs;
  Tensors grads;  // by input; undefined where none was asked for
};

// Of one sample, in one dtype. The same values for every dtype, up to its rounding.
Tensors make_inputs(const Sample& sample, Dtype dtype);

// Cotangents for the outputs through which gradients flow; the others stay undefined.
Tensors make_cotangents(const Sample& sample, const Tensors& outputs);

Tensors to_f64(const Tensors& tensors);  // floats; integers and absent tensors stay as they are

bool has_gradient(const Sample& sample);  // of any input

// One forward pass, and a backward pass for inputs that `asks` marks. `passes` times, into the same leaves.
OpRun run_op(const std::shared_ptr<const Op>& op, const Tensors& inputs, const Tensors& cotangents,
             const std::vector<bool>& asks, int passes = 1);
std::vector<bool> all_differentiated(const Sample& sample);

// Of the sample's op on these inputs.
Tensors cotangents_for(const Sample& sample, const Tensors& inputs, Dtype dtype);

// body(info, sample, dtype) for everything in the registry.
void for_each_sample(const std::function<void(const OpInfo&, const Sample&, Dtype)>& body);

// Memory is guarded (engine/core/allocator.h) for the rest of the scope.
class MemoryGuard {
 public:
  MemoryGuard() { set_memory_guard(true); }
  ~MemoryGuard() { set_memory_guard(false); }
};

// Empty where |got - want| <= tolerance * max(1, max |want|) everywhere; else where and by how much it is not.
std::string difference(const Tensor& got, const Tensor& want, double tolerance);
std::string difference(const Tensors& got, const Tensors& want, double tolerance);  // as many as `want` has

bool are_same_bits(const Tensors& a, const Tensors& b);
bool are_same_bits(const OpRun& a, const OpRun& b);

double tolerance_of(const Sample& sample, Dtype dtype);

// Names of the classes that derive from Op in the sources under these folders.
std::vector<std::string> op_classes_in_sources(const std::vector<std::string>& folders);
std::string class_name(const Op& op);  // without name spaces

}  // namespace taper::test
