#include "train/step_record.h"

#include "engine/kernels/kernels.h"

namespace taper {

StepRecord::StepRecord(int64_t micro_batches, int64_t gradients, int64_t norms, Device device)
    : micro_batches_(micro_batches), gradients_(gradients), norms_(norms) {
  all_ = Tensor::zeros({calibration_at() + 2 * norms}, Dtype::f64, device, "what a step measures");
}

bool StepRecord::has_shape(int64_t micro_batches, int64_t gradients, int64_t norms, Device device) const {
  return all_ && all_.device() == device && micro_batches_ == micro_batches && gradients_ == gradients &&
         norms_ == norms;
}

Tensor StepRecord::entry(int64_t micro_batch, Entry entry) const {
  const bool is_triple = entry >= kScale;
  return part(entries_at() + micro_batch * kEntries + entry, is_triple ? 3 : 1);
}

Tensor StepRecord::update() const { return part(update_at(), kUpdateScalars); }

int64_t StepRecord::calibration_at() const { return update_at() + kUpdateScalars; }

}  // namespace taper
