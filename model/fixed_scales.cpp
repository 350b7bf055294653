#include "model/fixed_scales.h"

#include <algorithm>

#include "engine/core/error.h"

namespace taper {
namespace {

std::vector<double> statistics_of(const Tensor& h, NormKind kind, double eps) {
  const Dtype dtype = h.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const Tensor s = Tensor::empty({h.shape().rows()}, dtype, h.device(), "statistics of a norm");
  const Tensor sums = Tensor::empty({3}, Dtype::f64, h.device(), "sums of statistics");
  kernels::scale_loss_fwd(sums, s, h, kind, eps, 0.0);
  return s.to_doubles();
}

}  // namespace

Tensor token_kinds(const Tensor& tokens, int64_t end_of_text) {
  const Tensor kinds = Tensor::empty(tokens.shape(), Dtype::i32);
  const Tensor host = tokens.to(Device::cpu);
  const int64_t length = tokens.dim(1);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const TokenKind kind = i % length == 0                          ? TokenKind::first_position
                           : host.data<int32_t>()[i] == end_of_text ? TokenKind::end_of_text
                                                                    : TokenKind::ordinary;
    kinds.data<int32_t>()[i] = static_cast<int32_t>(kind);
  }
  return kinds;
}

Tensor statistic_sums(const Tensor& h, const Tensor& kinds, NormKind kind, double eps) {
  const std::vector<double> statistics = statistics_of(h, kind, eps);
  std::vector<double> sums(2 * kTokenKinds);
  for (size_t i = 0; i < statistics.size(); ++i) {
    const auto of = static_cast<size_t>(2 * kinds.data<int32_t>()[i]);
    sums[of] += statistics[i];
    sums[of + 1] += 1;
  }
  return Tensor::from(sums, {kTokenKinds, 2});
}

FixedScales::FixedScales(ParameterList& parameters, const std::string& name, int64_t paths)
    : scales_(parameters.add_constant(name + ".scales", {paths, kTokenKinds}, 0.0)) {}

double FixedScales::get(int64_t path, TokenKind kind) const {
  return scales_.to_doubles()[static_cast<size_t>(path * kTokenKinds + static_cast<int64_t>(kind))];
}

void FixedScales::set(int64_t path, TokenKind kind, double scale) const {
  std::vector<double> scales = scales_.to_doubles();
  scales[static_cast<size_t>(path * kTokenKinds + static_cast<int64_t>(kind))] = scale;
  scales_.copy_from(Tensor::from(scales, scales_.shape()).cast(scales_.dtype()));
}

Tensor FixedScales::by_token(int64_t path, const Tensor& kinds) const {
  std::vector<double> values(static_cast<size_t>(kinds.numel()));
  const std::vector<double> scales = scales_.to_doubles();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scales[static_cast<size_t>(path * kTokenKinds + kinds.data<int32_t>()[i])];
  }
  return Tensor::from(values, {kinds.dim(0), kinds.dim(1), 1}).cast(scales_.dtype()).to(scales_.device());
}

void rescale_reader(const Parameter& weight, const Parameter* bias, const Parameter* beta, int64_t first_row,
                    double ratio) {
  const int64_t cols = weight.master.dim(1), end = weight.master.dim(0);
  const Tensor rows = weight.master.rows(first_row, end);
  std::vector<double> w = rows.to_doubles();
  if (beta) {
    const std::vector<double> shift = beta->master.to_doubles();
    const Tensor biases = bias->master.rows(first_row, end);
    std::vector<double> b = biases.to_doubles();
    for (size_t i = 0; i < w.size(); ++i) {
      b[i / static_cast<size_t>(cols)] += (1 - ratio) * w[i] * shift[i % static_cast<size_t>(cols)];
    }
    biases.copy_from(Tensor::from(b, biases.shape()).cast(biases.dtype()));
  }
  for (double& value : w) value *= ratio;
  rows.copy_from(Tensor::from(w, rows.shape()).cast(rows.dtype()));
  weight.refresh_copy();
}

}  // namespace taper
