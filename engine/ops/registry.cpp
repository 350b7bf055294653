#include "engine/ops/registry.h"

namespace taper {

std::vector<OpInfo> all_ops() {
  std::vector<OpInfo> all;
  for (const auto& family : {linear_ops(), norm_ops(), attention_ops(), rotary_ops(), embedding_ops(),
                             cross_entropy_ops(), scale_loss_ops(), pointwise_ops(), plain_ops()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

}  // namespace taper
