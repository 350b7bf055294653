// What a run measures while its norms are still norms, and fixes when the taper starts: the constant c of every tapered
// norm (model/taper_norm.h) and the anchor's target, the mean pre-logit scale. Both come from running means, updated
// once a step over all tokens of the step; after taper start nothing is updated any more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/transformer.h"

namespace taper {

inline constexpr double kEmaDecay = 0.9;

// All that resuming needs. The means of the norms are in the order of tapered_norms().
struct CalibrationState {
  std::vector<NormCalibration> norms;
  double scale_mean = 0;  // of the step's mean s, biased towards its start at 0
  int64_t observed_steps = 0;
  std::optional<double> scale_target;  // set: the taper has started
};

class Calibration {
 public:
  // Keeps a reference to the model.
  explicit Calibration(Transformer& model, double decay = kEmaDecay);

  // One step's worth: for each tapered norm the two sums over all tokens (TaperNormResult::calibration, added up over
  // micro-batches), and the sum of s. REQUIRES: !is_fixed().
  void observe(const std::vector<NormCalibration>& sums, double scale_sum, int64_t tokens);

  // c = A / B, gamma_tilde <- gamma, beta_tilde <- beta in every tapered norm; the target is the bias-corrected mean of
  // s. Error where nothing was observed.
  void fix();
  // c = 1, with nothing observed; the rest as above. The target is still to be fixed.
  void fix_unit_scales();
  // The target alone, for a model whose c stands already.
  void fix_target(double target) { state_.scale_target = target; }

  bool is_fixed() const { return state_.scale_target.has_value(); }
  std::optional<double> scale_target() const { return state_.scale_target; }

  CalibrationState state() const;
  void restore(const CalibrationState& state);  // Error where it is of another model

 private:
  std::vector<TaperNorm*> norms_;
  double decay_;
  CalibrationState state_;  // its `norms` live in the TaperNorms
};

}  // namespace taper
