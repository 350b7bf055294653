// The identity on radial gradients, checked in a run. With n = h' / s, s = sqrt(mean(h'^2) + eps), and y the output of
// the final norm at gate g (h' = h, or h - mean(h) in a LayerNorm):
//   <dCE/dh, h> = (eps / s^2) g <dCE/dy, gamma n> + (1 - g) c <dCE/dy, gamma_tilde h'>
// The first part is Euler's theorem for a norm, which does not see the length of h but for eps: without a taper nothing
// pulls on that length. The second is what the norm-free branch adds, and what logit chasing comes from.
#pragma once

#include "model/transformer.h"

namespace taper {

// Sums over tokens of both sides, each divided by |h| and, of a mean loss, times the number of tokens.
struct RadialIdentity {
  double expected = 0;    // the right side
  double difference = 0;  // |left side - right side|
  double norm = 0;        // |dCE/dh|

  void add(const RadialIdentity& other);
};

// h and dh [..., C] of the stream before the final norm, dy [..., C] of its output; both gradients of the cross-entropy
// alone.
RadialIdentity check_radial_identity(const Transformer& model, Gate gate, const Tensor& h, const Tensor& dh,
                                     const Tensor& dy, int64_t tokens);

}  // namespace taper
