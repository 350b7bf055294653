#include "model/taper_norm.h"

#include <cmath>

#include "engine/core/error.h"

namespace taper {

TaperNorm::TaperNorm(ParameterList& parameters, const std::string& name, NormSite site, const ModelConfig& config,
                     int64_t paths)
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
  if (config.is_replaced_in_turn) scales_ = FixedScales(parameters, name, paths);
}

NormResult TaperNorm::forward(const Tensor& x, const Tensor& branch, const NormPass& pass) const {
  if (scales_.is_present()) return forward_in_turn(x, branch, pass);
  const double gate = site_ == NormSite::tapered ? pass.gate.value : site_ == NormSite::removed ? 0.0 : 1.0;
  const bool wants_calibration = pass.calibration && is_tapered();
  const TaperNormResult result =
      taper_norm(x, branch, inputs_, options(gate, pass.gate.live), out_dtype_, wants_calibration);
  if (wants_calibration) pass.calibration->push_back(result.calibration);
  return {result.y, result.h, {}};
}

NormResult TaperNorm::forward_in_turn(const Tensor& x, const Tensor& branch, const NormPass& pass) const {
  const TaperNormResult live = taper_norm(x, branch, inputs_, options(1), out_dtype_);
  if (pass.calibration) pass.calibration->push_back(statistic_sums(live.h, pass.kinds, kind_, eps_));
  const auto read_by = [&](int64_t path) {
    if (!scales_.is_fixed(path)) return live.y;
    // A fixed norm is the linear branch with the norm's own gain and shift, which other paths may share with it. The
    // scale goes before: centring a row and scaling it commute.
    const Tensor scaled_rows = multiply(live.h, scales_.by_token(path, pass.kinds));
    const TaperNormInputs linear{inputs_.gamma.detached(), inputs_.beta ? inputs_.beta.detached() : Tensor(),
                                 inputs_.gamma, inputs_.beta,
                                 Tensor::full({1}, 1.0, inputs_.c.dtype(), inputs_.c.device())};
    return taper_norm(scaled_rows, {}, linear, options(0), out_dtype_).y;
  };
  const bool is_split = scales_.paths() > 1 && (scales_.is_fixed(0) || scales_.is_fixed(1));
  return {read_by(0), live.h, is_split ? read_by(1) : Tensor()};
}

double TaperNorm::c() const { return inputs_.c ? inputs_.c.item() : 0.0; }

void TaperNorm::move_to(Device device) {
  if (site_ != NormSite::removed) return;
  inputs_.gamma = inputs_.gamma_tilde = inputs_.gamma.to(device);
  inputs_.c = inputs_.c.to(device);
}

void TaperNorm::start_taper() const {
  const auto& [a, b] = calibration_;
  require(b > 0 && std::isfinite(a) && std::isfinite(b),
          "{}: cannot fix c = A / B at taper start; got A = {}, B = {}, want positive finite means of the steps before",
          name_, a, b);
  start_taper_at(a / b);
}

void TaperNorm::start_taper_at(double c) const {
  inputs_.c.copy_from(Tensor::full({1}, c, inputs_.c.dtype()));
  copy_to_linear_branch();
}

void TaperNorm::end_replacement() {
  start_taper_at(scales_.get(0, TokenKind::ordinary));
  scales_ = {};
}

void TaperNorm::copy_to_linear_branch() const {
  inputs_.gamma_tilde.copy_from(inputs_.gamma);
  if (inputs_.beta_tilde) inputs_.beta_tilde.copy_from(inputs_.beta);
}

}  // namespace taper
