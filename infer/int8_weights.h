// What int8 weights make of a model, for the forward pass of training: its loss with them, without a decoder.
#pragma once

#include "model/transformer.h"

namespace taper {

// Rounds every matrix that a decoder keeps as int8 (engine/kernels/int8_row.h) and leaves it in f32: those of the
// layers and the unembedding; the embedding only where it is the unembedding as well. The model has f32 masters in the
// processor's memory.
void round_to_int8(const Transformer& model);

}  // namespace taper
