#include "infer/int8_weights.h"

#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/kernels/int8_row.h"

namespace taper {

void round_to_int8(const Transformer& model) {
  require(model.precision() == Precision::f32 && model.device() == Device::cpu,
          "int8: a model in {}; want f32 in the processor's memory", to_string(model.precision()));
  for (const Parameter& p : model.parameters()) {
    const bool is_matrix = p.name.ends_with(".weight") && p.master.shape().rank == 2;
    if (!is_matrix || p.name == "wpe.weight" || (p.name == "wte.weight" && !model.config().is_tied)) continue;
    float* const values = p.master.data<float>();
    const int64_t k = p.master.dim(1);
    parallel_for(p.master.dim(0), 16, [&](int64_t begin, int64_t end) {
      for (float* row = values + begin * k; row < values + end * k; row += k) {
        const float scale = int8_scale(row, k);
        for (int64_t j = 0; j < k; ++j) row[j] = scale * static_cast<float>(to_int8(row[j], scale));
      }
    });
    p.refresh_copy();
  }
}

}  // namespace taper
