#include "infer/decode_norm.h"

#include "engine/core/error.h"

namespace taper {

void check_decodable(const Transformer& model, Plan plan) {
  require(plan != Plan::folded || !model.config().has_taper(),
          "plan folded: the model still has norms that taper; fold it first");
  require(model.precision() != Precision::f64, "decode: the model is loaded in {}; want f32 masters",
          to_string(model.precision()));
}

DecodeNorm decode_norm(const Transformer& model, const std::string& name, NormSite site, Plan plan,
                       const std::function<const float*(std::vector<float>)>& keep) {
  const ModelConfig& config = model.config();
  DecodeNorm norm;
  norm.kind = config.norm;
  norm.eps = static_cast<float>(config.eps);
  norm.gate = static_cast<float>(config.gate);
  if (site == NormSite::removed) return norm;
  const auto values_of = [&](const char* part) { return model.parameter(name + part).master.data<float>(); };
  const auto vector = [&](const char* part) {
    return keep(std::vector<float>(values_of(part), values_of(part) + config.width));
  };
  norm.form = site == NormSite::plain || plan == Plan::normed ? NormForm::norm
              : plan == Plan::scaled                          ? NormForm::scale
                                                              : NormForm::both;
  const bool has_shift = config.norm == NormKind::layer;
  if (norm.form != NormForm::scale) {
    norm.gamma = vector(".gamma");
    if (has_shift) norm.beta = vector(".beta");
  }
  if (norm.form != NormForm::norm) {
    const float* gamma_tilde = values_of(".gamma_tilde");
    const double c = *values_of(".c");
    std::vector<float> scale(static_cast<size_t>(config.width));
    for (int64_t i = 0; i < config.width; ++i) scale[static_cast<size_t>(i)] = static_cast<float>(c * gamma_tilde[i]);
    norm.scale = keep(std::move(scale));
    if (has_shift) norm.shift = vector(".beta_tilde");
  }
  return norm;
}

}  // namespace taper
