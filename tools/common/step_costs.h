// What a training step and a decoded token cost whatever they run on: bytes that must be moved, operations of matrix
// products, launches on a CUDA device; and the time a card needs at least for that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace taper {

struct KernelCost {
  std::string name;
  int64_t calls;     // in a step
  int64_t bytes;     // of a call: all that is read and all that is written, once
  double flops;      // of a call, of matrix products; 0: none worth counting
  int64_t launches;  // of a call, on a CUDA device
};

// A step of `batch` windows of the model's context in one micro-batch, recorded (train/trainer.h), at a gate of 1, 0 or
// between, with calibration at 1 and an anchor below. product: the type of matrix products, f32 or bf16; all else is
// f32. Launches are those of recorded work with products one launch each and activations apart: a library that fuses or
// divides these makes it a few less or more.
std::vector<KernelCost> step_costs(const ModelConfig& config, int64_t batch, Dtype product, double gate);

// One token after `context` others, one sequence: every weight and the cache once, and its launches
// recorded (infer/decoder.h).
KernelCost token_cost(const ModelConfig& config, int64_t context, Dtype product);

struct Card {
  const char* name;
  double bytes_per_s;
  double bf16_flops_per_s, f32_flops_per_s;  // dense; f32 not on tensor cores, as our products are
};
// NVIDIA's data sheets "H100 Tensor Core GPU" (SXM) and "H200 Tensor Core GPU" (SXM); tensor cores without sparsity.
inline constexpr Card kCards[] = {{"H100", 3.35e12, 989e12, 67e12}, {"H200", 4.8e12, 989e12, 67e12}};

// Of a call: the longer of moving its bytes and computing its products.
double least_seconds(const KernelCost& cost, const Card& card, Dtype product);

}  // namespace taper
