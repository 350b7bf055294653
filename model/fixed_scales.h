// Norms that go one after another (FakeLN: Baroni et al., arXiv 2507.02559; train/fakeln_schedule.h says when). A path
// of a norm is live, and divides each token by its statistic, until it is fixed to a constant scale s, one over the
// statistic's average:
//   y = s h' gamma + beta,   h' = h (RMS) or h - mean(h) (LayerNorm)
// Position 0 and the end-of-text token have streams of quite another length than the rest, so each kind of token has
// an s of its own until the last phases. norm1 has two paths: what q and k read, and what v reads; other norms have
// one. Once all are fixed the model is one that has tapered to gate 0 (Transformer::end_replacement).
#pragma once

#include <string>

#include "engine/kernels/kernels.h"
#include "model/parameter.h"

namespace taper {

enum class TokenKind : uint8_t { ordinary, first_position, end_of_text };
inline constexpr int64_t kTokenKinds = 3;

// tokens i32 [B, T] -> i32 [B, T] of TokenKind; position 0 is first_position, whatever token stands there. end_of_text:
// its id, or -1.
Tensor token_kinds(const Tensor& tokens, int64_t end_of_text);

// Over the rows of h [B, T, C], by kind: f64 [kTokenKinds, 2], the sum of the norm's statistic and the number of rows.
Tensor statistic_sums(const Tensor& h, const Tensor& kinds, NormKind kind, double eps);

class FixedScales {
 public:
  FixedScales() = default;  // absent
  // NORM.scales [paths, kTokenKinds], not trained; 0 where live.
  FixedScales(ParameterList& parameters, const std::string& name, int64_t paths);

  bool is_present() const { return static_cast<bool>(scales_); }
  int64_t paths() const { return scales_.dim(0); }
  bool is_fixed(int64_t path) const { return get(path, TokenKind::ordinary) != 0; }
  double get(int64_t path, TokenKind kind) const;
  void set(int64_t path, TokenKind kind, double scale) const;

  // The scale of every token: [B, T, 1] in the masters' dtype.
  Tensor by_token(int64_t path, const Tensor& kinds) const;

 private:
  Tensor scales_;
};

// Rows [first_row, ...) of a product y = W x + b, reading x' = ratio (x - beta) + beta in its place, so that a scale
// inside x moves into the matrix: W <- ratio W, b <- b + (1 - ratio) W beta. `bias` and `beta` are null for RMS.
void rescale_reader(const Parameter& weight, const Parameter* bias, const Parameter* beta, int64_t first_row,
                    double ratio);

}  // namespace taper
