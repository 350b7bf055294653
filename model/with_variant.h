// A model whose norms are live, made ready for the taper: how fine-tuning begins.
#pragma once

#include <string_view>

#include "model/transformer.h"

namespace taper {

// UsageError, beginning with `what`, where the norms of a model are not all live any more: folded away, tapered to
// gate 0, or left half-tapered by a run that did not end. It says what to do with such a model.
void check_norms_are_live(const ModelConfig& config, std::string_view what);

// The same function at gate 1, with the norms of `variant` tapered: parameters are copied, gamma_tilde, beta_tilde and
// c are 0 until the taper starts; baseline drops them. Step and gate start anew. REQUIRES live norms.
Transformer with_variant(const Transformer& model, Variant variant);

// The same with all norms tapered, to be replaced one after another (model/fixed_scales.h). end_of_text: the id of the
// token with averages of its own, -1: none. UsageError for LayerNorms before products without bias.
Transformer with_norms_in_turn(const Transformer& model, int64_t end_of_text);

}  // namespace taper
