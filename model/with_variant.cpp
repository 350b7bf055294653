#include "model/with_variant.h"

#include "engine/core/error.h"
#include "engine/kernels/kernels.h"

namespace taper {
namespace {

// The parameters of `model` that the other configuration has too, but for those of linear branches, which start at 0.
Transformer copied(const Transformer& model, ModelConfig config) {
  config.gate = 1.0;
  config.step = 0;
  Transformer result(config, model.precision());
  for (const Parameter& p : result.parameters()) {
    const bool is_of_linear_branch = !p.is_trained || p.name.ends_with("_tilde");
    if (is_of_linear_branch) {
      kernels::fill(p.master, 0.0);
    } else {
      p.master.copy_from(model.parameter(p.name).master);
    }
    p.refresh_copy();
  }
  return result;
}

}  // namespace

void check_norms_are_live(const ModelConfig& config, std::string_view what) {
  // Exports to other programs write a removed norm as one with a huge eps, which is the identity (model/stock_form.h).
  const bool is_identity = config.eps > 1;
  const bool is_folded =
      is_identity || config.block_norms == NormSite::removed || config.final_norm == NormSite::removed;
  require_usage(!is_folded,
                "{}: the norms of this model are folded away already; want the model that it was made from, or any "
                "other whose norms are live",
                what);
  if (!config.has_taper() || config.gate == 1.0) return;
  require_usage(config.gate != 0.0,
                "{}: the norms of this model have tapered away already (gate 0 at step {}); fold it, or want a model "
                "whose norms are live",
                what, config.step);
  fail_usage(
      "{}: the taper of this model is unfinished; got gate {} at step {}, want a model whose norms are live (gate 1); "
      "its run goes on to gate 0 with --resume",
      what, config.gate, config.step);
}

Transformer with_variant(const Transformer& model, Variant variant) {
  ModelConfig config = model.config();
  set_variant(config, variant);
  config.is_replaced_in_turn = false;
  return copied(model, config);
}

Transformer with_norms_in_turn(const Transformer& model, int64_t end_of_text) {
  ModelConfig config = model.config();
  require_usage(config.norm == NormKind::rms || config.has_bias,
                "fakeln: LayerNorms before products without bias cannot go one after another; want a model with biases "
                "or with RMSNorm, or variant internal or all");
  set_variant(config, Variant::all);
  config.is_replaced_in_turn = true;
  config.end_of_text = end_of_text;
  return copied(model, config);
}

}  // namespace taper
