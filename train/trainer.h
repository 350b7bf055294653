// One training step: forward and backward over micro-batches, the mean over all tokens of the step, gradient clipping,
// AdamW; and the two phases of a tapering run, calibration before taper start and the fixed constants after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/optim/adamw.h"
#include "model/transformer.h"
#include "train/anchor_loss.h"
#include "train/calibration.h"
#include "train/fakeln.h"
#include "train/schedules.h"

namespace taper {

// What the norms that taper are when the run begins.
enum class NormStart : uint8_t {
  live,   // norms, until the schedule's taper start
  fixed,  // gone already: y = c h gamma_tilde, c fitted to the first batch as at any taper start
  unit,   // gone already, with c = 1
};

struct TrainerOptions {
  Schedule schedule;
  double anchor = 0;          // lambda; with fakeln the weight of its auxiliary loss
  double weight_decay = 0.1;  // on matrices alone
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adam_eps = 1e-8;
  double clip = 1.0;  // greatest norm of the gradient
  double ema_decay = kEmaDecay;
  // In place of the gate's taper: the norms go one after another. The schedule above then tapers nothing.
  std::optional<FakeLnSchedule> fakeln;
  NormStart norm_start = NormStart::live;  // else the schedule tapers from step 0 to step 0
  bool checks_radial = false;              // StepReport::identity, at some cost
  int64_t micro_batch_windows = 0;         // 0: as many as kActivationBytes hold
};

// What the tensors of one micro-batch may take, roughly. Several small ones cost a little time.
inline constexpr int64_t kActivationBytes = int64_t{384} << 20;
int64_t default_micro_batch_windows(const ModelConfig& config, Precision precision, int64_t window);

// The radial part of a gradient at the pre-logit stream, per token (of the mean loss, times the number of tokens).
struct RadialReport {
  double outward = 0;  // mean of <dh, h / |h|>: negative where descent makes h longer
  double share = 0;    // sum of |<dh, h / |h|>| over the sum of |dh|
};

// train/radial_check.h, per token.
struct RadialIdentityReport {
  double expected = 0;  // what the identity says radial_of_ce.outward is
  double error = 0;     // sum of the tokens' differences from it over the sum of |dh|
};

// What is logged of a step.
struct StepReport {
  int64_t step = 0;
  double learning_rate = 0;
  double gate = 1;
  double loss = 0;            // ce + anchor * aux
  double ce = 0;              // mean over tokens, in nats
  std::optional<double> aux;  // mean of (s - target)^2, from taper start on
  double scale = 0;           // mean of s, the pre-logit scale
  double greatest_scale = 0;
  double logit_rms = 0;
  double gradient_norm = 0;  // before clipping
  double clip_factor = 1;    // what the update multiplies the gradient with
  RadialReport radial_of_ce, radial_of_loss;
  std::optional<RadialIdentityReport> identity;  // where it is checked
  std::string bad_tensor;                        // not empty: something was not finite there, and nothing was updated
};

// Besides parameters and AdamW's moments, all that the next step depends on.
struct TrainerState {
  int64_t step = 0;     // the next one
  int64_t updates = 0;  // AdamW's counter: steps that were not finite do not count
  CalibrationState calibration;
  std::vector<KindMeans> fakeln;  // FakeLn::means(), where the run is one
};

class Trainer {
 public:
  // Keeps a reference to the model.
  Trainer(Transformer& model, const TrainerOptions& options);

  // The next step of the schedule on tokens and targets, i32 [B, T].
  StepReport step(const Tensor& tokens, const Tensor& targets);
  // A step with scalars given from outside.
  StepReport step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets);

  // Gradients alone, as a step computes them: parameters keep them in compute.grad(). The report has no step and no
  // learning rate.
  StepReport compute_gradients(Gate gate, const Tensor& tokens, const Tensor& targets);

  int64_t next_step() const { return step_; }
  Calibration& calibration() { return calibration_; }
  // What the anchor holds s to: fixed from taper start on, or FakeLN's running mean.
  std::optional<double> scale_target() const;
  const Adamw& optimizer() const { return adamw_; }
  const TrainerOptions& options() const { return options_; }

  TrainerState state() const;
  // After the parameters and the moments were loaded. Error where the state is of another model.
  void restore(const TrainerState& state);

 private:
  struct StepSums;
  void prepare_calibration(const StepScalars& scalars, const Tensor& tokens);
  StepSums measure_batch(const Tensor& tokens, Gate gate) const;
  void run_micro_batch(Gate gate, const Tensor& tokens, const Tensor& targets, int64_t step_tokens, StepSums& sums);
  bool wants_calibration() const;
  void observe(const StepSums& sums, int64_t tokens);
  StepReport report_of(const StepSums& sums, int64_t tokens) const;

  Transformer& model_;
  TrainerOptions options_;
  AnchorLoss anchor_;
  Calibration calibration_;
  std::optional<FakeLn> fakeln_;
  Adamw adamw_;
  int64_t step_ = 0;
};

}  // namespace taper
