// Every op of the engine with samples of its use, from which tests/test_ops.cpp makes its checks: shapes, agreement
// with a composite of plain ops, central differences in f64 against a random cotangent, accumulation, canaries, errors,
// repeatability, and CUDA against CPU. An op that is in no list, at the end of its file
// in engine/ops, fails the suite.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/op.h"

namespace taper {

// How near two results must be: |a - b| <= tolerance * max(1, max |b|) over a tensor. 0: equal to the bit.
struct Tolerance {
  double f64 = 1e-9;
  double f32 = 2e-5;
  double bf16 = 2e-2;
};

// One use of an op. Inputs are made by the driver in each dtype: random normals unless `make` says otherwise.
struct SampleInput {
  Shape shape;
  bool is_differentiated = true;                // compared with central differences
  bool follows_dtype = true;                    // false: keeps f32 (f64 in f64 runs), as parameters of norms do
  std::function<Tensor(Dtype)> make = nullptr;  // token ids, positive numbers, absent inputs (returns {})
};

struct Sample {
  std::string label;  // "odd sizes", "gate 0.37": what the sample is there for
  // Builds the op for activations of this dtype.
  std::function<std::shared_ptr<const Op>(Dtype)> op;
  std::vector<SampleInput> inputs;
  // The same from plain ops; null where the op is plain itself. Returns as many outputs as are to be compared.
  std::function<Tensors(const Tensors&)> reference = nullptr;
  Tolerance tolerance{};
  bool has_bf16 = true;
  std::vector<int> outputs_without_grad{};  // outputs that are statistics, through which no gradient flows
};

// A use that must be refused: the Error names the op and contains `message`.
struct BadSample {
  std::string message;
  std::function<void()> call;
};

struct OpInfo {
  std::string name;  // equals Op::name()
  std::function<std::vector<Sample>()> samples;
  std::function<std::vector<BadSample>()> bad_samples;
  bool keeps_bits_for_any_threads = true;  // results and gradients do not depend on the number of threads
};

// One list a family, at the end of its file.
std::vector<OpInfo> linear_ops();
std::vector<OpInfo> norm_ops();
std::vector<OpInfo> attention_ops();
std::vector<OpInfo> rotary_ops();
std::vector<OpInfo> embedding_ops();
std::vector<OpInfo> cross_entropy_ops();
std::vector<OpInfo> scale_loss_ops();
std::vector<OpInfo> pointwise_ops();
std::vector<OpInfo> plain_ops();

std::vector<OpInfo> all_ops();

}  // namespace taper
