// One norm of a pre-norm transformer, and its removal.
//
//   y = g * norm(h) + (1 - g) * linear(h)
//   RMS:        norm = h / r(h) * gamma,                linear = c * h * gamma_tilde
//   LayerNorm:  norm = h' / sigma(h) * gamma + beta,    linear = c * h' * gamma_tilde + beta_tilde,  h' = h - mean(h)
//
// The two roles. `norm` is what the network learns with: it divides every token by a statistic of that token. `linear`
// is what replaces it: the same for every token, so it folds into the matrices that read it (model/fold). Until taper
// start the gate g is 1 and only `norm` is evaluated; two running means A = E[|h gamma|^2 / r] and B = E[|h gamma|^2]
// are kept meanwhile. At taper start c = A / B, the least-squares fit of c * h gamma to h gamma / r, and gamma_tilde
// and beta_tilde start from gamma and beta. From there g falls to 0, and at g = 0 no statistic is computed.
//
// A model may also lose its norms one after another, each in one step: model/fixed_scales.h.
//
// Where things are: engine/ops/norm.cpp the mathematics; model/gate.h the value g; train/schedules when it falls;
// train/calibration the running means over a run; model/fold the removal; here the parameters, the running means and
// the choice of branch.
// Source: Kanavalau, Amo Alonso, Lall, "Gated Removal of Normalization and Scale Anchoring in Pre-Norm Transformers",
// arXiv 2602.10408.
#pragma once

#include <string>

#include "engine/ops/ops.h"
#include "model/config.h"
#include "model/fixed_scales.h"
#include "model/gate.h"
#include "model/parameter.h"

namespace taper {

// Running means of one tapered norm, in f64. Both start from zero: the bias cancels in their ratio.
struct NormCalibration {
  double a = 0;  // of |h gamma|^2 / r(h)
  double b = 0;  // of |h gamma|^2

  void observe(double mean_a, double mean_b, double decay) {
    a = decay * a + (1 - decay) * mean_a;
    b = decay * b + (1 - decay) * mean_b;
  }
};

// What a pass through the model tells all its norms.
struct NormPass {
  Gate gate;
  Tensor kinds{};                  // token_kinds(); only where norms are replaced one after another
  Tensors* calibration = nullptr;  // where each tapered norm appends its sums, if they are wanted
};

struct NormResult {
  Tensor y;       // [..., C], in the dtype of products
  Tensor h;       // the stream with the branch added
  Tensor y_of_v;  // what v reads where it is not y: norm1, on its way to fixed scales
};

class TaperNorm {
 public:
  // Parameters gamma (beta), and where the site tapers gamma_tilde (beta_tilde) and c, under `name`. A removed site has
  // none and passes the stream on. `paths` counts only where norms are replaced one after another.
  TaperNorm(ParameterList& parameters, const std::string& name, NormSite site, const ModelConfig& config,
            int64_t paths = 1);

  // Adds the branch (may be absent) to the stream x [..., C] and normalises the sum. The gate counts for tapered sites
  // alone, and not where they are replaced one after another. Sums for calibration: TaperNormResult::calibration, or
  // statistic_sums().
  NormResult forward(const Tensor& x, const Tensor& branch, const NormPass& pass) const;

  const std::string& name() const { return name_; }
  NormSite site() const { return site_; }
  bool is_tapered() const { return site_ == NormSite::tapered; }
  double c() const;

  // REQUIRES of the rest: is_tapered().
  NormCalibration& calibration() { return calibration_; }
  const NormCalibration& calibration() const { return calibration_; }
  // c = A / B, gamma_tilde <- gamma, beta_tilde <- beta. Error where B is not positive and finite: nothing was
  // observed.
  void start_taper() const;
  // The same with a c from elsewhere.
  void start_taper_at(double c) const;

  // Where norms are replaced one after another; absent otherwise.
  const FixedScales& scales() const { return scales_; }
  // All paths are fixed, to the first one's scale for ordinary tokens: from here this is a norm at gate 0.
  void end_replacement();

  // Of what stands in for the parameters of a removed norm; these move by themselves.
  void move_to(Device device);

  const TaperNormInputs& inputs() const { return inputs_; }

 private:
  NormOptions options(double gate, const ConstView& live = {}) const { return {kind_, eps_, gate, live}; }
  NormResult forward_in_turn(const Tensor& x, const Tensor& branch, const NormPass& pass) const;
  void copy_to_linear_branch() const;

  std::string name_;
  NormSite site_;
  NormKind kind_;
  double eps_;
  Dtype out_dtype_;
  TaperNormInputs inputs_;
  NormCalibration calibration_;
  FixedScales scales_;
};

}  // namespace taper
