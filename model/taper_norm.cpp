#include "model/taper_norm.h"

#include <cmath>

#include "engine/core/error.h"

namespace taper {

TaperNorm::TaperNorm(ParameterList& parameters, const std::string& name, NormSite site, const ModelConfig& config)
    : name_(name),
      site_(site),
      kind_(config.norm),
      eps_(config.eps),
      out_dtype_(product_dtype(parameters.precision())) {
  if (site_ == NormSite::removed) {
    // Nothing is left but the addition: the linear branch with ones, whatever the kind of norm was.
    const Dtype dtype = master_dtype(parameters.precision());
    kind_ = NormKind::rms;
    inputs_.gamma = inputs_.gamma_tilde = Tensor::full({config.width}, 1.0, dtype);
    inputs_.c = Tensor::full({1}, 1.0, dtype);
    return;
  }
  const bool has_shift = kind_ == NormKind::layer;
  inputs_.gamma = parameters.add_vector(name + ".gamma", config.width, 1.0);
  if (has_shift) inputs_.beta = parameters.add_vector(name + ".beta", config.width, 0.0);
  if (site_ != NormSite::tapered) return;
  // Zero until the taper starts, so that a use before calibration shows.
  inputs_.gamma_tilde = parameters.add_vector(name + ".gamma_tilde", config.width, 0.0);
  if (has_shift) inputs_.beta_tilde = parameters.add_vector(name + ".beta_tilde", config.width, 0.0);
  inputs_.c = parameters.add_constant(name + ".c", {1}, 0.0);
}

TaperNormResult TaperNorm::forward(const Tensor& x, const Tensor& branch, Gate gate, bool wants_calibration) const {
  NormOptions options;
  options.kind = kind_;
  options.eps = eps_;
  options.gate = site_ == NormSite::tapered ? gate.value : site_ == NormSite::removed ? 0.0 : 1.0;
  return taper_norm(x, branch, inputs_, options, out_dtype_, wants_calibration && is_tapered());
}

double TaperNorm::c() const { return inputs_.c ? inputs_.c.item() : 0.0; }

void TaperNorm::start_taper() const {
  const auto& [a, b] = calibration_;
  require(b > 0 && std::isfinite(a) && std::isfinite(b),
          "{}: cannot fix c = A / B at taper start; got A = {}, B = {}, want positive finite means of the steps before",
          name_, a, b);
  inputs_.c.copy_from(Tensor::full({1}, a / b, inputs_.c.dtype()));
  inputs_.gamma_tilde.copy_from(inputs_.gamma);
  if (inputs_.beta_tilde) inputs_.beta_tilde.copy_from(inputs_.beta);
}

}  // namespace taper
