// Small models with random parameters, gains, shifts and constants of tapered norms included, so that no part of a
// function can be left out unnoticed.
#pragma once

#include <string>

#include "model/transformer.h"

namespace taper::test {

// 2 layers, width 16, 4 heads, vocabulary 61, context 24; arch taper, gpt2 or llama. With a variant that tapers the
// gate is 0.
ModelConfig small_config(const std::string& arch, Variant variant = Variant::baseline);
Transformer random_model(const ModelConfig& config, uint64_t seed = 5);

// Logits of a few fixed rows at the model's own gate.
Tensor sample_logits(const Transformer& model);
// max |a - b| / max(1, max |a|)
double logit_distance(const Tensor& a, const Tensor& b);

}  // namespace taper::test
