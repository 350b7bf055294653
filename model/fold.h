// Removes the tapered norms of a model whose gate is 0: each becomes part of the matrices that read it.
//
//   RMS:        W' = c W D_gamma~                    b' = b
//   LayerNorm:  W' = c W D_gamma~ (I - 11^T/d)       b' = b + W beta~
//
// Readers of a block's norm1: q, k and v; of norm2: up, and gate where the MLP has one; of the final norm: the
// unembedding, which then is a matrix of its own, for the embedding stays as it is. The output matrix is never centred
// over the vocabulary, so raw logits stay the same.
// Source: Kanavalau, Amo Alonso, Lall, arXiv 2602.10408.
#pragma once

#include "model/transformer.h"

namespace taper {

// The linear branch of a norm, y = c h' gamma~ + beta~.
struct LinearBranch {
  NormKind kind = NormKind::rms;
  double c = 1;
  Tensor gamma_tilde;  // f32 [in]
  Tensor beta_tilde;   // f32 [in]; layer norm alone
};

struct FoldedReader {
  Tensor weight;  // f32 [out, in]
  Tensor bias;    // f32 [out]; undefined where there is none
};

// A matrix [out, in] f32 that reads the branch, with its bias (may be undefined), as one that reads h. In double from
// the f32 values, rounded once.
FoldedReader fold_reader(const LinearBranch& branch, const Tensor& weight, const Tensor& bias);

// A new model without the norms that tapered; what it does not change shares no memory with the old one. Error where
// the gate is not 0 (it names the step), where nothing tapers, and where the norms are gone already. REQUIRES masters
// in f32.
Transformer fold(const Transformer& model);

// Whether folding has taken norms out of it.
bool is_folded(const ModelConfig& config);

// Norms that are left in a model, of 2 L + 1.
int64_t norm_count(const ModelConfig& config);

}  // namespace taper
