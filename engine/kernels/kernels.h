// Every kernel of the engine, one line each (see kernel.h for the contract). Shapes: letters of core/shape.h; a tensor
// [..., C] counts as N rows of C columns. Activations are f64, f32 or bf16; statistics and sums are f32 (f64 for f64).
#pragma once

#include "engine/kernels/kernel.h"

namespace taper {

enum class NormKind : uint8_t { rms, layer };
enum class Activation : uint8_t { none, gelu_tanh, gelu_erf, relu };
enum class Binary : uint8_t { add, subtract, multiply, divide };
enum class Unary : uint8_t { negate, exp, log, sqrt, reciprocal, square, abs, tanh, gelu_tanh, gelu_erf, relu, silu };

// c = op(a) op(b), op(a) [m, k], op(b) [k, n]; a transposed operand lies in memory as [k, m] or [n, k].
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// Scalars of a tapered norm: the gate g in [0, 1]; eps inside the root.
struct NormOptions {
  NormKind kind = NormKind::rms;
  double eps = 1e-5;
  double gate = 1.0;
  // f64 [1] or absent: what a device's kernels read in place of a gate between 0 and 1 when they run, so that work
  // recorded once serves every step of a taper.
  ConstView live_gate = {};
};

// q, k, v stand side by side in the last dimension of qkv: [B, T, (H + 2 * Hkv) * D], heads contiguous.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads
  int64_t head_size = 1;
  double scale = 1.0;  // of q k^T
};

struct AdamwOptions {
  double beta1, beta2, eps, weight_decay;
};
// What changes from one update to the next, f64 in memory of the device.
enum UpdateScalar : int64_t {
  kLearningRate,
  kClipFactor,   // multiplies the gradient; 0: nothing is updated
  kCorrection1,  // 1 - beta1^updates
  kCorrection2,
  kUpdates,  // so far, this one included
  kUpdateScalars
};

// --- fill.cpp: copies, casts, sums ---
TAPER_KERNEL(fill, Out y, double value)
TAPER_KERNEL(convert, Out y, In x)                // y = x, in y's dtype
TAPER_KERNEL(add_to, Out y, In x, double factor)  // y += factor * x; the dtypes may differ
TAPER_KERNEL(scale_by, Out y, double factor)      // y *= factor
// y *= factor[0], f64 [1]; y is not touched where that is 1.
TAPER_KERNEL(scale_by_value, Out y, In factor)
TAPER_KERNEL(sum_squares, Out result, In x)  // f64 [1]; the same bits for any number of threads

// --- matmul.cpp ---
TAPER_KERNEL(matmul, Acc c, In a, In b, MatmulOptions options)
// y = act(x w^T + bias); pre, where present, receives the argument of act. x [N, K], w [M, K], bias [M] or absent.
TAPER_KERNEL(linear_fwd, Out y, Out pre, In x, In w, In bias, Activation act)
// dpre = dy * act'(pre), and dbias [M] of it, where present. dpre may be dy. With act none pre is absent.
TAPER_KERNEL(linear_act_bwd, Out dpre, Acc dbias, In dy, In pre, Activation act)

// --- norm.cpp ---
// y = g (n gamma + beta) + (1 - g) (c h' gamma_tilde + beta_tilde), n = h' * rstd; h' = h (rms) or h - mean(h) (layer).
// With `branch` present, h = x + branch is formed first and written to `sum`; else h = x and sum is absent.
// mean [N] (layer only) and rstd [N] (gate > 0 only) are written where present.
// calibration, where present: f64 [2] receives the sums over rows of |h' gamma|^2 * rstd and of |h' gamma|^2.
TAPER_KERNEL(taper_norm_fwd, Out y, Out sum, Out mean, Out rstd, Out calibration, In x, In branch, In gamma, In beta,
             In gamma_tilde, In beta_tilde, In c, NormOptions options)
// dh: the gradient of h through y, plus dsum where present (what reaches `sum` from elsewhere). dbranch, where present,
// receives the same in its own dtype. Gradients of parameters that are not asked for are absent.
TAPER_KERNEL(taper_norm_bwd, Acc dh, Acc dbranch, Acc dgamma, Acc dbeta, Acc dgamma_tilde, Acc dbeta_tilde, In dy,
             In dsum, In h, In mean, In rstd, In gamma, In gamma_tilde, In c, NormOptions options)

// --- attention.cpp: causal, blocked, no T x T matrix in memory ---
TAPER_KERNEL(attention_fwd, Out y, Out lse, In qkv, AttentionOptions options)  // y [B, T, H * D], lse [B, H, T]
TAPER_KERNEL(attention_bwd, Acc dqkv, In dy, In y, In lse, In qkv, AttentionOptions options)

// --- rotary.cpp: turns the pairs (i, i + D/2) of q and k inside qkv, v unchanged; cos, sin [>= T, D/2]; the inverse is
// the backward ---
TAPER_KERNEL(rotary, Acc y, In x, In cos, In sin, AttentionOptions options, bool is_inverse)

// --- embedding.cpp: y[b, t] = wte[tokens[b, t]] + wpe[t]; wpe may be absent ---
TAPER_KERNEL(embedding_fwd, Out y, In tokens, In wte, In wpe)
TAPER_KERNEL(embedding_bwd, Acc dwte, Acc dwpe, In dy, In tokens)  // either may be absent

// --- cross_entropy.cpp: the unembedding's products happen in row blocks, so no batch of logits is ever in memory ---
// loss f64 [1] = factor * sum over rows of -log softmax(x w^T + bias)[target]; logit_squares f64 [1] = sum of logits^2.
// dx, dw, dbias, where present, receive the gradients of loss.
TAPER_KERNEL(unembed_cross_entropy, Out loss, Out logit_squares, Out dx, Out dw, Out dbias, In x, In w, In bias,
             In targets, double factor)

// --- scale_loss.cpp: s = sqrt(mean(h'^2) + eps) of each row ---
// sums f64 [3] = sum of s, greatest s, sum of (s - target)^2; s [N].
TAPER_KERNEL(scale_loss_fwd, Out sums, Out s, In h, NormKind kind, double eps, double target)
// Of factor * upstream[0] * sum (s - target)^2; upstream, f64 [1], counts as 1 where it is absent.
TAPER_KERNEL(scale_loss_bwd, Acc dh, In h, In s, In upstream, NormKind kind, double target, double factor)
// Of rows h and dh: sums f64 [3] = sum of <dh, h>/|h|, of |<dh, h>|/|h|, of |dh|.
TAPER_KERNEL(radial_sums, Out sums, In h, In dh)

// --- adamw.cpp ---
// The UpdateScalars, f64 [kUpdateScalars], from learning_rate f64 [1], the squared norms of all gradients and the
// losses, f64, absent: none. The clip factor is min(1, max_norm / norm); 0, and no further update counted, where a
// square or a loss is not finite.
TAPER_KERNEL(plan_update, Out scalars, In learning_rate, In squares, In losses, double max_norm, AdamwOptions options)
// One pass over one parameter: clip, moments, decay, update, bf16 copy (may be absent).
TAPER_KERNEL(adamw, Out master, Out m, Out v, Out copy, In grad, In scalars, AdamwOptions options)

// --- base/plain.cpp: what composites and tests are made of ---
TAPER_BASE_KERNEL(unary_fwd, Out y, In x, Unary function)
TAPER_BASE_KERNEL(unary_bwd, Acc dx, In dy, In x, Unary function)
TAPER_BASE_KERNEL(binary_fwd, Out y, In a, In b, Binary function)  // each dimension equal, or 1 in one of the two
TAPER_BASE_KERNEL(sum_to, Acc y, In x)                             // sums x over the dimensions that are 1 in y
TAPER_BASE_KERNEL(softmax_fwd, Out y, In x)                        // over the last dimension
TAPER_BASE_KERNEL(softmax_bwd, Acc dx, In dy, In y)

// --- swiglu.cpp ---
TAPER_KERNEL(swiglu_fwd, Out y, In x)  // x [N, 2F] = (gate, up): y = silu(gate) * up
TAPER_KERNEL(swiglu_bwd, Acc dx, In dy, In x)

// --- operations of matrix products, for profiles ---
inline double product_operations(Acc c, In a, In, const MatmulOptions& options) {
  const int64_t k = options.transpose_a ? a.rows() : a.cols();
  return 2.0 * static_cast<double>(c.numel()) * static_cast<double>(k);
}
inline double product_operations(Out y, Out, In x, In, In, const Activation&) {  // linear_fwd
  return 2.0 * static_cast<double>(y.numel()) * static_cast<double>(x.cols());
}
// The causal half of a product of all queries and keys, of every head: two products forward, five backward.
inline double causal_product(In qkv, const AttentionOptions& o) {
  const int64_t tokens = qkv.shape[1];
  return static_cast<double>(qkv.shape[0] * o.heads * o.head_size) * static_cast<double>(tokens) *
         static_cast<double>(tokens);
}
inline double product_operations(Out, Out, In qkv, const AttentionOptions& options) {
  return 2 * causal_product(qkv, options);
}
inline double product_operations(Acc, In, In, In, In qkv, const AttentionOptions& options) {
  return 5 * causal_product(qkv, options);
}
// unembed_cross_entropy: the logits, and the products of the gradients that are wanted
inline double product_operations(Out, Out, Out dx, Out dw, Out, In x, In w, In, In, const double&) {
  const int products = 1 + (dx ? 1 : 0) + (dw ? 1 : 0);
  return 2.0 * products * static_cast<double>(x.numel()) * static_cast<double>(w.rows());
}

}  // namespace taper
