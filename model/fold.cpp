#include "model/fold.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"

namespace taper {
namespace {

void check_foldable(const ModelConfig& config) {
  if (!config.has_taper()) {
    require(!is_folded(config), "fold: the norms of this model are folded already");
    fail("fold: this model has no norms that taper (it is a baseline); want variant internal or all");
  }
  require(
      config.gate == 0.0,
      "fold: the norms are not gone yet; the model was saved at step {} with gate {}, want gate 0: a step after the "
      "end of the taper",
      config.step, config.gate);
}

ModelConfig folded_config(const ModelConfig& config) {
  ModelConfig folded = config;
  const bool has_shift = config.norm == NormKind::layer;
  if (config.block_norms == NormSite::tapered) {
    folded.block_norms = NormSite::removed;
    folded.has_bias |= has_shift;
  }
  if (config.final_norm == NormSite::tapered) {
    folded.final_norm = NormSite::removed;
    folded.is_tied = false;
    folded.has_head_bias |= has_shift;
  }
  return folded;
}

class Folder {
 public:
  Folder(const Transformer& model, const Transformer& folded) : model_(model), folded_(folded) {}

  void run() const {
    const ModelConfig& config = model_.config();
    copy_unchanged();
    if (config.block_norms == NormSite::tapered) {
      for (int64_t i = 0; i < config.layers; ++i) {
        const std::string name = fmt::format("h.{}", i);
        fold_into(name + ".norm1", name + ".attn.qkv", name + ".attn.qkv");
        const std::string up = name + (config.is_gated_mlp ? ".mlp.gate_up" : ".mlp.up");
        fold_into(name + ".norm2", up, up);
      }
    }
    if (config.final_norm == NormSite::tapered) fold_into("norm_f", config.is_tied ? "wte" : "lm_head", "lm_head");
    for (const Parameter& p : folded_.parameters()) p.refresh_copy();
  }

 private:
  Tensor find(const Transformer& model, const std::string& name) const {
    for (const Parameter& p : model.parameters()) {
      if (p.name == name) return p.master;
    }
    return {};
  }

  // Biases that only folding made necessary start from 0.
  void copy_unchanged() const {
    for (const Parameter& p : folded_.parameters()) {
      if (const Tensor source = find(model_, p.name)) {
        p.master.copy_from(source);
      } else {
        std::fill_n(p.master.data<float>(), p.master.numel(), 0.0f);
      }
    }
  }

  void fold_into(const std::string& norm, const std::string& reader, const std::string& result) const {
    const LinearBranch branch{model_.config().norm, find(model_, norm + ".c").item(),
                              find(model_, norm + ".gamma_tilde"), find(model_, norm + ".beta_tilde")};
    const FoldedReader folded = fold_reader(branch, find(model_, reader + ".weight"), find(model_, reader + ".bias"));
    find(folded_, result + ".weight").copy_from(folded.weight);
    if (folded.bias) find(folded_, result + ".bias").copy_from(folded.bias);
  }

  const Transformer& model_;
  const Transformer& folded_;
};

}  // namespace

FoldedReader fold_reader(const LinearBranch& branch, const Tensor& weight, const Tensor& bias) {
  const int64_t out = weight.dim(0), in = weight.dim(1);
  require(branch.gamma_tilde.numel() == in, "fold: a norm of {} channels before a matrix {}",
          branch.gamma_tilde.numel(), describe(weight));
  const bool is_layer = branch.kind == NormKind::layer;
  const float* gain = branch.gamma_tilde.data<float>();
  FoldedReader folded{Tensor::empty(weight.shape(), Dtype::f32), {}};
  if (is_layer || bias) folded.bias = Tensor::empty({out}, Dtype::f32);
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t m = 0; m < out; ++m) {
    const float* w = weight.data<float>() + m * in;
    double mean = 0, shift = bias ? bias.data<float>()[m] : 0.0;
    for (int64_t k = 0; k < in; ++k) {
      row[static_cast<size_t>(k)] = branch.c * w[k] * gain[k];
      mean += row[static_cast<size_t>(k)];
      if (is_layer) shift += double(w[k]) * branch.beta_tilde.data<float>()[k];
    }
    mean = is_layer ? mean / double(in) : 0.0;
    float* to = folded.weight.data<float>() + m * in;
    for (int64_t k = 0; k < in; ++k) to[k] = static_cast<float>(row[static_cast<size_t>(k)] - mean);
    if (folded.bias) folded.bias.data<float>()[m] = static_cast<float>(shift);
  }
  return folded;
}

Transformer fold(const Transformer& model) {
  check_foldable(model.config());
  require(model.precision() != Precision::f64, "fold: the model is in f64; want masters in f32");
  Transformer folded(folded_config(model.config()), model.precision());
  Folder(model, folded).run();
  return folded;
}

bool is_folded(const ModelConfig& config) {
  return config.block_norms == NormSite::removed || config.final_norm == NormSite::removed;
}

int64_t norm_count(const ModelConfig& config) {
  return (config.block_norms == NormSite::removed ? 0 : 2 * config.layers) +
         (config.final_norm == NormSite::removed ? 0 : 1);
}

}  // namespace taper
