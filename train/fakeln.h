// FakeLN (Baroni et al., arXiv 2507.02559), the sequential rival of the gate: the statistic of each norm is replaced by
// its running average, one norm after another (train/fakeln_schedule.h), with the average of the moment of replacement.
// While it goes on, and after, the auxiliary loss weight * mean (s - mean s)^2 keeps the pre-logit scales of tokens
// alike; mean s is the running average of the final norm's statistic over ordinary tokens, which stops with the last
// replacement.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "model/transformer.h"
#include "train/fakeln_schedule.h"

namespace taper {

// A running mean without bias towards its start.
struct RunningMean {
  double sum = 0;
  double weight = 0;

  void observe(double value, double decay) {
    sum = decay * sum + (1 - decay) * value;
    weight = decay * weight + (1 - decay);
  }
  bool is_known() const { return weight > 0; }
  double mean() const { return sum / weight; }
};

// Of one norm, the average statistic of each kind of token (model/fixed_scales.h).
using KindMeans = std::array<RunningMean, kTokenKinds>;

class FakeLn {
 public:
  // Keeps a reference to the model, which with_norms_in_turn() made or which a run of this kind saved.
  FakeLn(Transformer& model, FakeLnSchedule schedule, double decay);

  const FakeLnSchedule& schedule() const { return schedule_; }
  // The replacements due before this step. Error where a norm's average is unknown.
  void begin_step(int64_t step);

  bool is_observing() const { return model_.config().is_replaced_in_turn; }
  // One step's sums for each norm: statistic_sums(), added up over micro-batches. REQUIRES is_observing().
  void observe(const std::vector<Tensor>& sums);
  // Absent before the first step.
  std::optional<double> mean_scale() const;

  // What resuming needs, in the order of tapered_norms().
  const std::vector<KindMeans>& means() const { return means_; }
  void restore(std::vector<KindMeans> means);  // Error where they are another model's

 private:
  void replace(const FakeLnEvent& event);
  void fix(size_t norm, int64_t path);
  void level(TokenKind kind);

  Transformer& model_;
  FakeLnSchedule schedule_;
  double decay_;
  std::vector<TaperNorm*> norms_;
  std::vector<KindMeans> means_;
};

}  // namespace taper
