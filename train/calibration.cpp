#include "train/calibration.h"

#include <cmath>

#include "engine/core/error.h"

namespace taper {

Calibration::Calibration(Transformer& model, double decay) : norms_(model.tapered_norms()), decay_(decay) {}

void Calibration::observe(const std::vector<NormCalibration>& sums, double scale_sum, int64_t tokens) {
  require(sums.size() == norms_.size(), "calibration: got sums of {} norms, want {}", sums.size(), norms_.size());
  const auto count = static_cast<double>(tokens);
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i]->calibration().observe(sums[i].a / count, sums[i].b / count, decay_);
  }
  state_.scale_mean = decay_ * state_.scale_mean + (1 - decay_) * scale_sum / count;
  ++state_.observed_steps;
}

void Calibration::fix() {
  require(state_.observed_steps > 0, "calibration: the taper starts before any step was observed");
  for (TaperNorm* norm : norms_) norm->start_taper();
  state_.scale_target = state_.scale_mean / (1 - std::pow(decay_, static_cast<double>(state_.observed_steps)));
}

void Calibration::fix_unit_scales() {
  for (const TaperNorm* norm : norms_) norm->start_taper_at(1);
}

CalibrationState Calibration::state() const {
  CalibrationState state = state_;
  for (const TaperNorm* norm : norms_) state.norms.push_back(norm->calibration());
  return state;
}

void Calibration::restore(const CalibrationState& state) {
  require(state.norms.size() == norms_.size(), "calibration: got the state of {} norms, want {}", state.norms.size(),
          norms_.size());
  for (size_t i = 0; i < norms_.size(); ++i) norms_[i]->calibration() = state.norms[i];
  state_ = state;
  state_.norms.clear();
}

}  // namespace taper
