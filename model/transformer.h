// The decoder: embedding -> L blocks -> final norm -> unembedding. One Block and one Transformer serve every
// architecture; what differs are the options of ModelConfig. Letters of engine/core/shape.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/attention.h"
#include "model/config.h"
#include "model/gate.h"
#include "model/mlp.h"
#include "model/parameter.h"
#include "model/taper_norm.h"

namespace taper {

// The residual stream h and the branch that the next norm adds to it, so that addition and norm are one pass.
struct Stream {
  Tensor h;       // [B, T, C], f32 (f64 in f64)
  Tensor branch;  // [B, T, C] in the dtype of products; undefined before the first block
};

class Block {
 public:
  Block(ParameterList& parameters, const std::string& name, const ModelConfig& config, const RotaryTables& rotary);

  Stream forward(const Stream& in, const NormPass& pass) const;

  void move_to(Device device);  // what is no parameter

  TaperNorm& norm1() { return norm1_; }
  TaperNorm& norm2() { return norm2_; }

 private:
  TaperNorm norm1_;
  Attention attention_;
  TaperNorm norm2_;
  Mlp mlp_;
};

struct HiddenStates {
  Tensor h;             // [B, T, C]: the residual stream before the final norm, where the anchor holds
  Tensor normed;        // [B, T, C]: what the unembedding reads
  Tensor h_input;       // the stream as it enters the final norm's addition: its gradient is the whole gradient of h
  Tensors calibration;  // sums of each tapered norm, in the order of tapered_norms(); empty unless asked for:
                        // f64 [2] (TaperNormResult), or statistic_sums() while norms are replaced one after another
};

class Transformer {
 public:
  // Parameters are allocated, not set: initialise() or load (model/model_folder.h). Error where the configuration is
  // bad.
  Transformer(const ModelConfig& config, Precision precision);
  Transformer(Transformer&&) = default;

  // N(0, 0.02), the two writers into the residual stream divided by sqrt(2 L); gamma 1; biases 0; gamma_tilde and c 0
  // until the taper starts.
  void initialise(uint64_t seed) { parameters_.initialise(seed); }

  // Error where ids of the processor are not i32 in [0, V). `what` names them.
  void check_ids(const Tensor& ids, const char* what) const;

  // tokens i32 [B, T], T <= context, each id in [0, V): Error otherwise.
  HiddenStates hidden(const Tensor& tokens, Gate gate, bool wants_calibration = false) const;
  // factor * sum of -log p(target) over all positions; normed [..., C], targets i32 [...].
  CrossEntropyResult cross_entropy(const Tensor& normed, const Tensor& targets, double factor) const;
  // [..., C] -> [..., V], all logits in memory: for a few tokens.
  Tensor unembed(const Tensor& normed) const;
  Tensor logits(const Tensor& tokens, Gate gate) const { return unembed(hidden(tokens, gate).normed); }

  const ModelConfig& config() const { return config_; }
  void set_saved_state(double gate, int64_t step);  // what the configuration says of the parameters
  Precision precision() const { return parameters_.precision(); }
  const std::vector<Parameter>& parameters() const { return parameters_.all(); }
  const Parameter& parameter(const std::string& name) const;  // Error where there is none
  std::vector<TaperNorm*> tapered_norms();                    // norm1, norm2 of each block, then norm_f
  // Of a model whose norms are replaced one after another (model/fixed_scales.h): all paths are fixed and the kinds of
  // token have one scale. From here it is a model at gate 0, with c a scalar for each norm; the scale of norm1's second
  // path goes into the rows of v.
  void end_replacement();

  // Moves every parameter, in place. Made on the processor, a model computes where it is; tokens and targets may be
  // given from the processor, where they are checked.
  void move_to(Device device);
  Device device() const { return wte_.device(); }

  void zero_grad() const;
  void set_requires_grad(bool requires_grad) const;  // of every trained parameter; true from the start

 private:
  ModelConfig config_;
  ParameterList parameters_;
  RotaryTables rotary_;
  Tensor wte_, wpe_;
  std::vector<Block> blocks_;
  std::vector<TaperNorm> final_norm_;  // exactly one, made after the blocks
  Tensor unembedding_, unembedding_bias_;
};

}  // namespace taper
