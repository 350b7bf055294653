#include "train/radial_check.h"

#include <cmath>
#include <vector>

namespace taper {
namespace {

using Vector = std::vector<double>;

// What multiplies the two branches of the final norm, channel by channel, the gate included.
struct Factors {
  Vector norm;    // g gamma
  Vector linear;  // (1 - g) c gamma_tilde; empty where the final norm does not taper
};

Factors factors_of(const Transformer& model, Gate gate) {
  const bool tapers = model.config().final_norm == NormSite::tapered;
  const double g = tapers ? gate.value : 1.0;
  Factors factors{model.parameter("norm_f.gamma").compute.to_doubles(), {}};
  for (double& value : factors.norm) value *= g;
  if (!tapers) return factors;
  const double c = model.parameter("norm_f.c").compute.to_doubles()[0];
  factors.linear = model.parameter("norm_f.gamma_tilde").compute.to_doubles();
  for (double& value : factors.linear) value *= (1 - g) * c;
  return factors;
}

double mean_of_row(const double* row, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += row[i];
  return sum / static_cast<double>(n);
}

}  // namespace

void RadialIdentity::add(const RadialIdentity& other) {
  expected += other.expected;
  difference += other.difference;
  norm += other.norm;
}

RadialIdentity check_radial_identity(const Transformer& model, Gate gate, const Tensor& h, const Tensor& dh,
                                     const Tensor& dy, int64_t tokens) {
  const ModelConfig& config = model.config();
  const auto width = static_cast<size_t>(config.width);
  const Factors factors = factors_of(model, gate);
  const Vector streams = h.to_doubles(), gradients = dh.to_doubles(), outputs = dy.to_doubles();
  RadialIdentity sums;
  for (size_t row = 0; row + width <= streams.size(); row += width) {
    const double* x = &streams[row];
    const double mean = config.norm == NormKind::layer ? mean_of_row(x, width) : 0.0;
    double centred_square = 0, square = 0, inner = 0, gradient_square = 0, by_norm = 0, by_linear = 0;
    for (size_t i = 0; i < width; ++i) {
      const double centred = x[i] - mean, d = gradients[row + i], out = outputs[row + i] * centred;
      centred_square += centred * centred;
      square += x[i] * x[i];
      inner += d * x[i];
      gradient_square += d * d;
      by_norm += factors.norm[i] * out;
      if (!factors.linear.empty()) by_linear += factors.linear[i] * out;
    }
    if (square == 0) continue;
    const double s_square = centred_square / static_cast<double>(width) + config.eps;
    const double expected = config.eps / s_square * by_norm / std::sqrt(s_square) + by_linear;
    const double scale = static_cast<double>(tokens) / std::sqrt(square);
    sums.expected += scale * expected;
    sums.difference += scale * std::abs(inner - expected);
    sums.norm += static_cast<double>(tokens) * std::sqrt(gradient_square);
  }
  return sums;
}

}  // namespace taper
