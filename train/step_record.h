// What a step measures, written by kernels into memory of the model's device and read by the host when it likes, for
// several steps at once.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/tensor.h"

namespace taper {

class StepRecord {
 public:
  // Of each micro-batch: sums over its tokens, three doubles where a name says so.
  enum Entry : int64_t {
    kCe,
    kLogitSquares,
    kScale,                           // kernels::scale_loss_fwd, three
    kRadialOfLoss = kScale + 3,       // kernels::radial_sums, three
    kRadialOfCe = kRadialOfLoss + 3,  // of the cross-entropy alone, three
    kEntries = kRadialOfCe + 3
  };

  StepRecord() = default;
  StepRecord(int64_t micro_batches, int64_t gradients, int64_t norms, Device device);

  bool has_shape(int64_t micro_batches, int64_t gradients, int64_t norms, Device device) const;
  int64_t norms() const { return norms_; }
  const Tensor& all() const { return all_; }

  // Views of the record, f64.
  Tensor objectives() const { return part(0, micro_batches_); }  // the loss that is differentiated, one a micro-batch
  Tensor objective(int64_t micro_batch) const { return part(micro_batch, 1); }
  Tensor entry(int64_t micro_batch, Entry entry) const;
  Tensor squares() const { return part(squares_at(), gradients_); }          // of each gradient
  Tensor update() const;                                                     // Adamw::scalars(), after the step
  Tensor calibration() const { return part(calibration_at(), 2 * norms_); }  // two sums for each tapered norm

 private:
  Tensor part(int64_t begin, int64_t count) const { return all_.rows(begin, begin + count); }
  int64_t entries_at() const { return micro_batches_; }
  int64_t squares_at() const { return micro_batches_ * (1 + kEntries); }
  int64_t update_at() const { return squares_at() + gradients_; }
  int64_t calibration_at() const;

  int64_t micro_batches_ = 0, gradients_ = 0, norms_ = 0;
  Tensor all_;

  friend class StepNumbers;
};

// A record as the host reads it.
class StepNumbers {
 public:
  // values: of record.all(), kept by the caller.
  StepNumbers(const StepRecord& record, const double* values) : record_(record), values_(values) {}

  int64_t micro_batches() const { return record_.micro_batches_; }
  double objective(int64_t micro_batch) const { return values_[micro_batch]; }
  const double* entry(int64_t micro_batch, StepRecord::Entry entry) const {
    return values_ + record_.entries_at() + micro_batch * StepRecord::kEntries + entry;
  }
  const double* squares() const { return values_ + record_.squares_at(); }
  const double* update() const { return values_ + record_.update_at(); }
  const double* calibration() const { return values_ + record_.calibration_at(); }

 private:
  const StepRecord& record_;
  const double* values_;
};

}  // namespace taper
