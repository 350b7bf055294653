// A model's parameters as decoding reads them: every matrix packed once for streaming (engine/kernels/decode.h), every
// norm as the plan has it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/kernels/decode.h"
#include "infer/huge_memory.h"
#include "infer/plan.h"
#include "model/transformer.h"

namespace taper {

struct PackedMatrix {
  std::byte* data = nullptr;
  int64_t rows = 0;              // a multiple of kPanelRows
  int64_t k = 0;                 // columns with padding
  const float* scale = nullptr;  // [rows]; int8 alone
  const float* bias = nullptr;

  int64_t panels() const { return rows / kPanelRows; }
};

struct LayerWeights {
  DecodeNorm norm1, norm2;
  PackedMatrix qkv;   // for each group of heads its rows of q, k and v, filled up to whole panels
  PackedMatrix out;   // scale and bias are applied with the residual stream
  PackedMatrix up;    // gated: 16 rows of gate and 16 of up in turn
  PackedMatrix down;  // as out
};

// Sizes that follow from a configuration. Heads come in groups and the MLP's hidden channels in slices, as many as a
// power of two up to 8 allows: a thread that owns some goes from the norm to its part of the branch without meeting
// the others.
struct DecodeShape {
  ModelConfig config;
  WeightType weights = WeightType::f32;

  int groups = 1;
  int slices = 1;
  int64_t channels = 0;     // C, up to whole panels
  int64_t channels_k = 0;   // C as columns of a matrix: even for bf16
  int64_t attention_k = 0;  // H D as columns
  int64_t group_rows = 0;   // rows of one group in qkv
  int64_t hidden = 0;       // F, up to whole panels
  int64_t vocabulary = 0;   // V, up to whole panels

  DecodeShape(const ModelConfig& config, WeightType weights);
  int64_t group_heads() const { return config.heads / groups; }
  int64_t group_kv_heads() const { return config.kv_heads / groups; }
  int64_t hidden_rows() const { return config.is_gated_mlp ? 2 * hidden : hidden; }  // of up
};

class DecodeWeights {
 public:
  // `weights`: of the packed copy. Error as check_decodable() (infer/decode_norm.h).
  DecodeWeights(const Transformer& model, Plan plan, WeightType weights);

  const DecodeShape& shape() const { return shape_; }
  const DecodeKernels& kernels() const { return kernels_; }

  std::vector<LayerWeights> layers;
  DecodeNorm final_norm;
  PackedMatrix unembedding;
  // One row of the embedding, rounded as the weights are; with int8 only where it is the unembedding as well.
  void embed(float* h, int32_t token, int64_t position) const;
  const float* cos(int64_t position) const;  // [D/2]; null without rotary positions
  const float* sin(int64_t position) const;
  int64_t bytes() const { return memory_.bytes(); }

 private:
  struct Packer;
  const float* keep(std::vector<float> values);
  void pack_all(const Transformer& model, Plan plan, Packer& packer);

  DecodeShape shape_;
  const DecodeKernels& kernels_;
  HugeMemory memory_;
  std::deque<std::vector<float>> vectors_;
  Tensor wte_, wpe_;
  RotaryTables rotary_;
};

}  // namespace taper
