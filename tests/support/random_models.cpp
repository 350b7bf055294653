#include "tests/support/random_models.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/random.h"

namespace taper::test {

ModelConfig small_config(const std::string& arch, Variant variant) {
  ModelConfig config;
  config.vocab_size = 61;
  config.context = 24;
  config.width = 16;
  config.layers = 2;
  config.heads = 4;
  set_arch(config, arch);
  set_variant(config, variant);
  if (config.has_taper()) {
    config.gate = 0;
    config.step = 100;
  }
  return config;
}

Transformer random_model(const ModelConfig& config, uint64_t seed) {
  Transformer model(config, Precision::f32);
  model.set_requires_grad(false);
  Random random(seed, RandomStream::test);
  for (const Parameter& p : model.parameters()) {
    const bool is_gain = p.name.find("gamma") != std::string::npos;
    const bool is_constant = p.name.ends_with(".c");
    const double mean = is_gain ? 1 : is_constant ? 0.7 : 0;
    const double deviation = is_gain ? 0.3 : is_constant ? 0.05 : 0.2;
    for (int64_t i = 0; i < p.master.numel(); ++i) {
      p.master.data<float>()[i] = static_cast<float>(mean + deviation * random.next_normal());
    }
  }
  return model;
}

Tensor sample_logits(const Transformer& model) {
  const NoGrad no_grad;
  const int64_t tokens = std::min<int64_t>(model.config().context, 20);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 2 * tokens; ++i)
    ids.push_back(static_cast<int32_t>((i * i * 7 + 3 * i) % model.config().vocab_size));
  return model.logits(Tensor::from(ids, {2, tokens}), Gate{model.config().gate});
}

double logit_distance(const Tensor& a, const Tensor& b) {
  double most = 0, greatest = 1;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(double(a.data<float>()[i]) - double(b.data<float>()[i]));
    if (!(difference <= most)) most = difference;
    greatest = std::max(greatest, std::abs(double(a.data<float>()[i])));
  }
  return most / greatest;
}

}  // namespace taper::test
