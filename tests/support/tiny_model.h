// Models small enough for a test, of every kind.
#pragma once

#include <string>
#include <vector>

#include "engine/core/random.h"
#include "model/transformer.h"

namespace taper::test {

inline ModelConfig tiny_config(const std::string& arch = "taper", Variant variant = Variant::all) {
  ModelConfig config;
  config.vocab_size = 31;
  config.context = 8;
  config.width = 16;
  config.layers = 2;
  config.heads = 2;
  set_arch(config, arch);
  set_variant(config, variant);
  return config;
}

inline Tensor random_ids(const Shape& shape, int64_t vocab_size, uint64_t seed) {
  Random random(seed, RandomStream::test);
  const Tensor ids = Tensor::empty(shape, Dtype::i32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(random.next_below(static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

// Parameters far from their start, so that gains, biases and both branches of the norms count.
inline void scramble(const Transformer& model, uint64_t seed) {
  Random random(seed, RandomStream::test);
  for (const Parameter& p : model.parameters()) {
    for (int64_t i = 0; i < p.master.numel(); ++i) {
      const double value =
          (p.name.find("gamma") != std::string::npos || !p.is_trained ? 1.0 : 0.0) + 0.3 * random.next_normal();
      if (p.master.dtype() == Dtype::f64) {
        p.master.data<double>()[i] = value;
      } else {
        p.master.data<float>()[i] = static_cast<float>(value);
      }
    }
    p.refresh_copy();
  }
}

}  // namespace taper::test
