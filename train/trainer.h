// One training step: forward and backward over micro-batches, the mean over all tokens of the step, gradient clipping,
// AdamW; and the two phases of a tapering run, calibration before taper start and the fixed constants after it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/cuda_runtime.h"
#include "engine/optim/adamw.h"
#include "model/transformer.h"
#include "train/anchor_loss.h"
#include "train/calibration.h"
#include "train/fakeln.h"
#include "train/radial_check.h"
#include "train/schedules.h"
#include "train/step_record.h"

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
  bool records_steps = true;               // on a device: steps of one kind as one launch
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

  // The same without waiting for a device: the reports of steps so queued come from take_reports(), in their order. The
  // host needs them before state(); at most kMostQueued are kept on the device.
  void queue_step(const Tensor& tokens, const Tensor& targets);
  void queue_step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets);
  std::vector<StepReport> take_reports();
  static constexpr int64_t kMostQueued = 32;

  // Gradients alone, as a step computes them: parameters keep them in compute.grad(). The report has no step and no
  // learning rate.
  StepReport compute_gradients(Gate gate, const Tensor& tokens, const Tensor& targets);

  int64_t next_step() const { return step_; }
  Calibration& calibration() { return calibration_; }
  // What the anchor holds s to: fixed from taper start on, or FakeLN's running mean.
  std::optional<double> scale_target() const;
  const Adamw& optimizer() const { return adamw_; }
  const TrainerOptions& options() const { return options_; }

  // Kernels, copies and fills of the recorded step; 0 where none is.
  int64_t launches_of_recorded_step() const { return graph_ ? graph_->size() : 0; }

  TrainerState state() const;  // REQUIRES: take_reports() was called after the last queue_step()
  // After the parameters and the moments were loaded. Error where the state is of another model.
  void restore(const TrainerState& state);

 private:
  // What decides the kernels of a step and their arguments, but for values in memory.
  struct Form {
    double gate = 1;  // 0, 1, or 1/2 for all between
    bool calibrates = false;
    std::optional<double> target;
    Shape batch;
    bool operator==(const Form& other) const;
  };
  // A queued step whose numbers are still on the device.
  struct Queued {
    StepScalars scalars;
    int64_t tokens;
    std::optional<double> target;
    bool calibrates;
  };

  struct BatchMeasure {
    std::vector<NormCalibration> norms;
    double scale_sum = 0;
  };

  void prepare_calibration(const StepScalars& scalars, const Tensor& tokens);
  BatchMeasure measure_batch(const Tensor& tokens, Gate gate) const;
  Gate set_batch(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets);
  void prepare_record(int64_t windows, int64_t window);
  void run(const Form& form, const std::function<void()>& work);
  void run_gradients(Gate gate);
  void run_micro_batch(Gate gate, int64_t index, const Tensor& tokens, const Tensor& targets, Tensors& calibration);
  bool can_wait() const;
  bool wants_calibration() const;
  void fetch_queued();
  StepReport last_report();
  // The step's numbers as the host read them; and what the host does with them.
  StepReport finish(const double* values, const Queued& step);
  StepReport report_of(const StepNumbers& numbers, const Queued& step, double& scale_sum) const;

  Transformer& model_;
  TrainerOptions options_;
  AnchorLoss anchor_;
  Calibration calibration_;
  std::optional<FakeLn> fakeln_;
  Adamw adamw_;
  int64_t step_ = 0;

  // Of the step at hand, where the model is: recorded work reads and writes them at the addresses they have.
  Tensor tokens_, targets_;
  Tensor scalars_;  // f64: gate, learning rate
  StepRecord record_;
  int64_t micro_batch_ = 0;  // windows
  Tensors fakeln_sums_;
  RadialIdentity identity_;

  Form form_;
  int64_t cache_of_form_ = 0;  // that the allocator held after its first step
  std::unique_ptr<cuda::Graph> graph_;

  Tensor history_;  // [kMostQueued, size of the record]
  std::vector<Queued> queued_;
  std::vector<StepReport> reports_;
};

}  // namespace taper
