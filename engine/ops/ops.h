// The operations on tensors, as the models call them. Each is recorded on the tape (engine/autograd/tape.h).
// Shapes: letters of core/shape.h; [..., C] means any leading dimensions. Parameters that may be absent say so.
// In mixed precision activations and weights of products are bf16; norms, statistics, sums and losses stay f32.
#pragma once

#include "engine/core/tensor.h"
#include "engine/kernels/kernels.h"

namespace taper {

// --- linear.cpp ---
// act(x weight^T + bias): x [..., K], weight [M, K] of x's dtype, bias [M] (f32; f64 for f64) or absent -> [..., M].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation act = Activation::none);

// --- norm.cpp --- the tapered norm: y = g norm(h) + (1 - g) (c h' gamma_tilde + beta_tilde); spec in the header of
// norm.cpp
struct TaperNormInputs {
  Tensor gamma;        // [C]
  Tensor beta;         // [C], layer norm alone
  Tensor gamma_tilde;  // [C]; may be absent at gate 1
  Tensor beta_tilde;   // [C], layer norm alone
  Tensor c;            // [1], not trained; may be absent at gate 1
};
struct TaperNormResult {
  Tensor y;            // [..., C], in out_dtype
  Tensor h;            // x + branch, in x's dtype (x itself where branch is absent)
  Tensor calibration;  // f64 [2], where asked for: sums over rows of |h' gamma|^2 / stat and of |h' gamma|^2
};
// Adds the branch (any float dtype, or absent) to the residual stream x [..., C] and normalises the sum.
TaperNormResult taper_norm(const Tensor& x, const Tensor& branch, const TaperNormInputs& inputs,
                           const NormOptions& options, Dtype out_dtype, bool wants_calibration = false);

// --- attention.cpp --- causal self-attention: qkv [B, T, (H + 2 Hkv) D] -> [B, T, H D]
Tensor causal_attention(const Tensor& qkv, const AttentionOptions& options);

// --- rotary.cpp --- rotates q and k inside qkv; cos, sin f32 (f64 for f64) [>= T, D/2], constants
Tensor rotary(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const AttentionOptions& options);

// --- embedding.cpp --- tokens i32 [B, T], wte [V, C], wpe [>= T, C] or absent -> [B, T, C] in out_dtype
Tensor embedding(const Tensor& tokens, const Tensor& wte, const Tensor& wpe, Dtype out_dtype);

// --- cross_entropy.cpp --- unembedding and cross-entropy in one, never holding the logits of a batch
struct CrossEntropyResult {
  Tensor loss;           // f64 [1]: factor * sum over rows of -log p(target)
  Tensor logit_squares;  // f64 [1]: sum of logits^2
};
// x [..., C], weight [V, C] of x's dtype, bias [V] or absent, targets i32 [...]. factor 1/rows gives the mean.
CrossEntropyResult unembed_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                         const Tensor& targets, double factor);

// --- scale_loss.cpp --- the anchor: factor * sum over rows of (s - target)^2, s = sqrt(mean(h'^2) + eps)
struct ScaleLossResult {
  Tensor loss;  // f64 [1]
  Tensor sums;  // f64 [3]: sum of s, greatest s, sum of (s - target)^2
};
ScaleLossResult scale_loss(const Tensor& h, NormKind kind, double eps, double target, double factor);

// --- pointwise.cpp, plain.cpp --- the plain ops: composites and tests are made of them. Same dtypes in, same out.
Tensor add(const Tensor& a, const Tensor& b);  // these four broadcast dimensions of size 1, of equal rank
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor unary(const Tensor& x, Unary function);
Tensor scaled(const Tensor& x, double factor);                                // factor * x
Tensor sum_last(const Tensor& x);                                             // [..., C] -> [..., 1]
Tensor sum_all(const Tensor& x);                                              // -> [1, ..., 1], of x's rank
Tensor softmax(const Tensor& x);                                              // over the last dimension
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});  // rank 2
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor swiglu(const Tensor& gate_up);  // [..., 2F] -> [..., F]: silu(first half) * second half

}  // namespace taper
