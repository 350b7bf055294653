#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/error.h"
#include "model/model_folder.h"

namespace taper {

struct Trainer::StepSums {
  double ce = 0;         // mean over the step's tokens
  double objective = 0;  // ce and the anchor's term
  double logit_squares = 0;
  ScaleSums scale;
  AnchorLoss::Parts radial;
  std::vector<NormCalibration> calibration;

  void add_calibration(const Tensors& sums) {
    calibration.resize(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      calibration[i].a += sums[i].data<double>()[0];
      calibration[i].b += sums[i].data<double>()[1];
    }
  }
};

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
      calibration_(model, options.ema_decay) {
  for (const Parameter& p : model.parameters()) {
    if (!p.is_trained) continue;
    trained_.push_back(&p);
    state_.first_moments.push_back(Tensor::zeros(p.master.shape(), p.master.dtype(), Device::cpu, "AdamW's moments"));
    state_.second_moments.push_back(Tensor::zeros(p.master.shape(), p.master.dtype(), Device::cpu, "AdamW's moments"));
  }
}

StepReport Trainer::step(const Tensor& tokens, const Tensor& targets) {
  return step(options_.schedule.at(state_.step), tokens, targets);
}

StepReport Trainer::step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets) {
  prepare_calibration(scalars, tokens);
  StepReport report = compute_gradients(scalars.gate, tokens, targets);
  report.step = scalars.step;
  report.learning_rate = scalars.learning_rate;
  if (report.bad_tensor.empty()) update(scalars.learning_rate, report.gradient_norm);
  state_.step = scalars.step + 1;
  model_.set_saved_state(scalars.gate.value, state_.step);
  return report;
}

void Trainer::prepare_calibration(const StepScalars& scalars, const Tensor& tokens) {
  if (scalars.step < options_.schedule.taper_start || calibration_.is_fixed()) return;
  if (calibration_.state().observed_steps == 0) {
    // Taper start at step 0: nothing has run yet, so the step's own batch is measured first.
    const NoGrad no_grad;
    StepSums sums;
    const int64_t windows = tokens.dim(0);
    for (int64_t b = 0; b < windows; ++b) {
      const HiddenStates states = model_.hidden(tokens.rows(b, b + 1), Gate{1.0}, true);
      sums.add_calibration(states.calibration);
      sums.scale.add(anchor_.measure(states.h, {}));
    }
    observe(sums, tokens.numel());
  }
  calibration_.fix();
}

StepReport Trainer::compute_gradients(Gate gate, const Tensor& tokens, const Tensor& targets) {
  require(tokens.shape() == targets.shape() && tokens.shape().rank == 2 && tokens.numel() > 0,
          "training step: tokens are {} and targets {}, want the same [B, T]", describe(tokens), describe(targets));
  const int64_t windows = tokens.dim(0);
  const int64_t most = options_.micro_batch_windows > 0
                           ? options_.micro_batch_windows
                           : default_micro_batch_windows(model_.config(), model_.precision(), tokens.dim(1));
  model_.zero_grad();
  StepSums sums;
  for (int64_t begin = 0; begin < windows; begin += most) {
    const int64_t end = std::min(windows, begin + most);
    run_micro_batch(gate, tokens.rows(begin, end), targets.rows(begin, end), tokens.numel(), sums);
  }
  StepReport report = report_of(sums, tokens.numel());
  report.gate = gate.value;
  report.gradient_norm = gradient_norm();
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm)) {
    report.bad_tensor = first_bad_tensor();
  } else if (!calibration_.is_fixed()) {
    observe(sums, tokens.numel());
  }
  return report;
}

void Trainer::run_micro_batch(Gate gate, const Tensor& tokens, const Tensor& targets, int64_t step_tokens,
                              StepSums& sums) {
  const std::optional<double> target = calibration_.scale_target();
  HiddenStates states = model_.hidden(tokens, gate, !target.has_value());
  states.h_input.set_retain_grad();
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
  }
}

void Trainer::observe(const StepSums& sums, int64_t tokens) {
  calibration_.observe(sums.calibration, sums.scale.s, tokens);
}

StepReport Trainer::report_of(const StepSums& sums, int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  const auto radial = [&](const RadialSums& r) {
    return RadialReport{r.outward / count, r.norm > 0 ? r.magnitude / r.norm : 0.0};
  };
  StepReport report;
  report.loss = sums.objective;
  report.ce = sums.ce;
  if (calibration_.is_fixed()) report.aux = sums.scale.squared_deviation / count;
  report.scale = sums.scale.s / count;
  report.greatest_scale = sums.scale.greatest_s;
  report.logit_rms = std::sqrt(sums.logit_squares / count / static_cast<double>(model_.config().vocab_size));
  report.radial_of_ce = radial(sums.radial.of_cross_entropy);
  report.radial_of_loss = radial(sums.radial.of_loss);
  return report;
}

double Trainer::gradient_norm() const {
  double squares = 0;
  const Tensor sum = Tensor::empty({1}, Dtype::f64, Device::cpu, "a sum of squares");
  for (const Parameter* p : trained_) {
    const Tensor grad = p->compute.grad();
    if (!grad) continue;
    kernels::sum_squares(sum, grad);
    squares += sum.item();
  }
  return std::sqrt(squares);
}

std::string Trainer::first_bad_tensor() const {
  if (const auto name = first_non_finite(model_)) return *name;
  const Tensor sum = Tensor::empty({1}, Dtype::f64, Device::cpu, "a sum of squares");
  for (const Parameter* p : trained_) {
    const Tensor grad = p->compute.grad();
    if (!grad) continue;
    kernels::sum_squares(sum, grad);
    if (!std::isfinite(sum.item())) return "the gradient of " + p->name;
  }
  return "the loss";
}

void Trainer::update(double learning_rate, double gradient_norm) {
  const auto count = static_cast<double>(++state_.updates);
  AdamwOptions adamw;
  adamw.lr = learning_rate;
  adamw.beta1 = options_.beta1;
  adamw.beta2 = options_.beta2;
  adamw.eps = options_.adam_eps;
  adamw.correction1 = 1 - std::pow(options_.beta1, count);
  adamw.correction2 = 1 - std::pow(options_.beta2, count);
  adamw.clip_factor = gradient_norm > options_.clip ? options_.clip / gradient_norm : 1.0;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const Parameter& p = *trained_[i];
    adamw.weight_decay = p.is_decayed ? options_.weight_decay : 0.0;
    kernels::adamw(p.master, state_.first_moments[i], state_.second_moments[i], p.has_copy() ? p.compute : Tensor(),
                   p.compute.grad(), adamw);
  }
}

TrainerState Trainer::state() const {
  TrainerState state = state_;
  state.calibration = calibration_.state();
  return state;
}

void Trainer::restore(const TrainerState& state) {
  require(state.first_moments.size() == trained_.size() && state.second_moments.size() == trained_.size(),
          "training state: got moments of {} parameters, want {}", state.first_moments.size(), trained_.size());
  for (size_t i = 0; i < trained_.size(); ++i) {
    state_.first_moments[i].copy_from(state.first_moments[i]);
    state_.second_moments[i].copy_from(state.second_moments[i]);
  }
  state_.step = state.step;
  state_.updates = state.updates;
  calibration_.restore(state.calibration);
}

}  // namespace taper
