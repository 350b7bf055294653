#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "engine/optim/grad_clip.h"
#include "model/model_folder.h"
#include "train/radial_check.h"

namespace taper {

struct Trainer::StepSums {
  double ce = 0;         // mean over the step's tokens
  double objective = 0;  // ce and the anchor's term
  double logit_squares = 0;
  ScaleSums scale;
  AnchorLoss::Parts radial;
  RadialIdentity identity;
  Tensors calibration;  // of each tapered norm, f64: HiddenStates::calibration

  void add_calibration(const Tensors& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i == calibration.size()) {
        calibration.push_back(sums[i].detached());
      } else {
        kernels::add_to(calibration[i], sums[i], 1.0);
      }
    }
  }
};

namespace {

std::vector<AdamwParameter> optimized_parameters(const Transformer& model) {
  std::vector<AdamwParameter> optimized;
  for (const Parameter& p : model.parameters()) {
    if (!p.is_trained) continue;
    optimized.push_back({p.name, p.master, p.has_copy() ? p.compute : Tensor(), p.compute, p.is_decayed});
  }
  return optimized;
}

AdamwConfig adamw_config(const TrainerOptions& options) {
  AdamwConfig config;
  config.lr = options.schedule.peak;
  config.beta1 = options.beta1;
  config.beta2 = options.beta2;
  config.eps = options.adam_eps;
  config.weight_decay = options.weight_decay;
  return config;
}

std::vector<NamedGradient> gradients_of(const Transformer& model) {
  std::vector<NamedGradient> gradients;
  for (const Parameter& p : model.parameters()) {
    if (p.is_trained) gradients.push_back({"the gradient of " + p.name, p.compute.grad()});
  }
  return gradients;
}

}  // namespace

// A GPU has the memory, and wants the work at once.
constexpr int64_t kMoreOnGpu = 16;

int64_t default_micro_batch_windows(const ModelConfig& config, Precision precision, int64_t window) {
  const int64_t product = size_of(product_dtype(precision));
  const int64_t stream = size_of(master_dtype(precision));
  const int64_t inner = config.heads * config.head_size;
  const int64_t qkv = inner + 2 * config.kv_heads * config.head_size;
  const int64_t hidden = (config.is_gated_mlp ? 3 : 2) * config.mlp_hidden;
  const int64_t block = 2 * config.width * (stream + product) + (qkv + inner + hidden) * product;
  const int64_t token = std::max<int64_t>(1, config.layers * block);
  return std::max<int64_t>(1, kActivationBytes / (token * window));
}

Trainer::Trainer(Transformer& model, const TrainerOptions& options)
    : model_(model),
      options_(options),
      anchor_(model.config(), options.anchor),
      calibration_(model, options.ema_decay),
      adamw_(optimized_parameters(model), adamw_config(options)) {
  if (options.fakeln) fakeln_.emplace(model, *options.fakeln, options.ema_decay);
}

std::optional<double> Trainer::scale_target() const {
  return fakeln_ ? fakeln_->mean_scale() : calibration_.scale_target();
}

bool Trainer::wants_calibration() const { return fakeln_ ? fakeln_->is_observing() : !calibration_.is_fixed(); }

StepReport Trainer::step(const Tensor& tokens, const Tensor& targets) {
  StepScalars scalars = options_.schedule.at(step_);
  if (fakeln_) scalars.gate.value = fakeln_->schedule().gate(step_);
  return step(scalars, tokens, targets);
}

StepReport Trainer::step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets) {
  prepare_calibration(scalars, tokens);
  StepReport report = compute_gradients(scalars.gate, tokens, targets);
  report.step = scalars.step;
  report.learning_rate = scalars.learning_rate;
  if (report.bad_tensor.empty()) adamw_.step(scalars.learning_rate, report.clip_factor);
  step_ = scalars.step + 1;
  model_.set_saved_state(scalars.gate.value, step_);
  return report;
}

void Trainer::prepare_calibration(const StepScalars& scalars, const Tensor& tokens) {
  if (fakeln_) return fakeln_->begin_step(scalars.step);
  if (scalars.step < options_.schedule.taper_start || calibration_.is_fixed()) return;
  const auto count = static_cast<double>(tokens.numel());
  if (options_.norm_start == NormStart::unit) {
    calibration_.fix_unit_scales();
    return calibration_.fix_target(measure_batch(tokens, scalars.gate).scale.s / count);
  }
  // Taper start at step 0: nothing has run yet, so the step's own batch is measured first.
  if (calibration_.state().observed_steps == 0) observe(measure_batch(tokens, Gate{1.0}), tokens.numel());
  calibration_.fix();
}

Trainer::StepSums Trainer::measure_batch(const Tensor& tokens, Gate gate) const {
  const NoGrad no_grad;
  StepSums sums;
  for (int64_t window = 0; window < tokens.dim(0); ++window) {
    const HiddenStates states = model_.hidden(tokens.rows(window, window + 1), gate, gate.value > 0);
    sums.add_calibration(states.calibration);
    sums.scale.add(anchor_.measure(states.h, {}));
  }
  return sums;
}

StepReport Trainer::compute_gradients(Gate gate, const Tensor& tokens, const Tensor& targets) {
  require(tokens.shape() == targets.shape() && tokens.shape().rank == 2 && tokens.numel() > 0,
          "training step: tokens are {} and targets {}, want the same [B, T]", describe(tokens), describe(targets));
  const int64_t windows = tokens.dim(0);
  const int64_t most = options_.micro_batch_windows > 0
                           ? options_.micro_batch_windows
                           : default_micro_batch_windows(model_.config(), model_.precision(), tokens.dim(1)) *
                                 (model_.device() == Device::cuda ? kMoreOnGpu : 1);
  model_.zero_grad();
  StepSums sums;
  for (int64_t begin = 0; begin < windows; begin += most) {
    const int64_t end = std::min(windows, begin + most);
    run_micro_batch(gate, tokens.rows(begin, end), targets.rows(begin, end), tokens.numel(), sums);
  }
  StepReport report = report_of(sums, tokens.numel());
  report.gate = gate.value;
  const GradientNorm norm = gradient_norm(gradients_of(model_), options_.clip);
  report.gradient_norm = norm.norm;
  report.clip_factor = norm.clip_factor;
  if (!std::isfinite(report.loss) || !norm.is_finite) {
    report.bad_tensor = first_non_finite(model_).value_or(norm.is_finite ? "the loss" : norm.first_bad);
  } else if (wants_calibration()) {
    observe(sums, tokens.numel());
  }
  return report;
}

void Trainer::run_micro_batch(Gate gate, const Tensor& tokens, const Tensor& targets, int64_t step_tokens,
                              StepSums& sums) {
  const std::optional<double> target = scale_target();
  HiddenStates states = model_.hidden(tokens, gate, wants_calibration());
  states.h_input.set_retain_grad();
  const Tensor normed = options_.checks_radial ? states.normed : Tensor();
  if (options_.checks_radial) normed.set_retain_grad();
  const CrossEntropyResult ce = model_.cross_entropy(states.normed, targets, 1.0 / static_cast<double>(step_tokens));
  states.normed = {};
  Tensor objective = ce.loss;
  ScaleSums scale;
  if (anchor_.is_active(target)) {
    objective = add(objective, anchor_.loss(states.h, *target, step_tokens, scale));
  } else {
    scale = anchor_.measure(states.h, target);
  }
  backward(objective);

  sums.ce += ce.loss.item();
  sums.objective += objective.item();
  sums.logit_squares += ce.logit_squares.item();
  sums.scale.add(scale);
  sums.add_calibration(states.calibration);
  if (const Tensor dh = states.h_input.grad()) {
    const AnchorLoss::Parts parts = anchor_.take_apart(states.h, dh, target, step_tokens);
    sums.radial.of_loss.add(parts.of_loss);
    sums.radial.of_cross_entropy.add(parts.of_cross_entropy);
    // From here on dh is the gradient of the cross-entropy alone.
    if (options_.checks_radial) {
      sums.identity.add(check_radial_identity(model_, gate, states.h, dh, normed.grad(), step_tokens));
    }
  }
}

void Trainer::observe(const StepSums& sums, int64_t tokens) {
  if (fakeln_) return fakeln_->observe(sums.calibration);
  std::vector<NormCalibration> norms;
  for (const Tensor& sum : sums.calibration) {
    const std::vector<double> values = sum.to_doubles();
    norms.push_back({values[0], values[1]});
  }
  calibration_.observe(norms, sums.scale.s, tokens);
}

StepReport Trainer::report_of(const StepSums& sums, int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  const auto radial = [&](const RadialSums& r) {
    return RadialReport{r.outward / count, r.norm > 0 ? r.magnitude / r.norm : 0.0};
  };
  StepReport report;
  report.loss = sums.objective;
  report.ce = sums.ce;
  if (scale_target()) report.aux = sums.scale.squared_deviation / count;
  report.scale = sums.scale.s / count;
  report.greatest_scale = sums.scale.greatest_s;
  report.logit_rms = std::sqrt(sums.logit_squares / count / static_cast<double>(model_.config().vocab_size));
  report.radial_of_ce = radial(sums.radial.of_cross_entropy);
  report.radial_of_loss = radial(sums.radial.of_loss);
  if (options_.checks_radial) {
    const RadialIdentity& it = sums.identity;
    report.identity = {it.expected / count, it.norm > 0 ? it.difference / it.norm : 0.0};
  }
  return report;
}

TrainerState Trainer::state() const {
  return {step_, adamw_.step_count(), calibration_.state(), fakeln_ ? fakeln_->means() : std::vector<KindMeans>()};
}

void Trainer::restore(const TrainerState& state) {
  adamw_.set_step_count(state.updates);
  adamw_.write_copies();
  calibration_.restore(state.calibration);
  if (fakeln_) fakeln_->restore(state.fakeln);
  step_ = state.step;
}

}  // namespace taper
