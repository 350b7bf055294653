#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/tape.h"
#include "engine/core/allocator.h"
#include "engine/core/error.h"
#include "engine/core/profile.h"
#include "engine/optim/grad_clip.h"
#include "model/model_folder.h"
#include "train/radial_check.h"

namespace taper {

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

// Sums of micro-batches, of each tapered norm.
void add_calibration(Tensors& total, const Tensors& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    if (i == total.size()) {
      total.push_back(sums[i].detached());
    } else {
      kernels::add_to(total[i], sums[i], 1.0);
    }
  }
}

std::vector<NormCalibration> norm_calibrations(const double* sums, int64_t norms) {
  std::vector<NormCalibration> result;
  for (int64_t i = 0; i < norms; ++i) result.push_back({sums[2 * i], sums[2 * i + 1]});
  return result;
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

bool Trainer::Form::operator==(const Form& other) const {
  return gate == other.gate && calibrates == other.calibrates && target == other.target && batch == other.batch;
}

StepReport Trainer::step(const Tensor& tokens, const Tensor& targets) {
  queue_step(tokens, targets);
  return last_report();
}

StepReport Trainer::step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets) {
  queue_step(scalars, tokens, targets);
  return last_report();
}

StepReport Trainer::last_report() {
  fetch_queued();
  StepReport report = std::move(reports_.back());
  reports_.pop_back();
  return report;
}

std::vector<StepReport> Trainer::take_reports() {
  fetch_queued();
  return std::exchange(reports_, {});
}

void Trainer::queue_step(const Tensor& tokens, const Tensor& targets) {
  StepScalars scalars = options_.schedule.at(step_);
  if (fakeln_) scalars.gate.value = fakeln_->schedule().gate(step_);
  queue_step(scalars, tokens, targets);
}

void Trainer::queue_step(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets) {
  if (static_cast<int64_t>(queued_.size()) == kMostQueued) fetch_queued();
  prepare_calibration(scalars, tokens);
  const Gate gate = set_batch(scalars, tokens, targets);
  run({gate.is_norm()     ? 1
       : gate.is_linear() ? 0
                          : 0.5,
       wants_calibration(), scale_target(), tokens.shape()},
      [&] {
        run_gradients(gate);
        adamw_.step(scalars_.rows(1, 2), record_.squares(), record_.objectives(), options_.clip);
        record_.update().copy_from(adamw_.scalars());
      });
  const Queued step{scalars, tokens.numel(), scale_target(), wants_calibration()};
  step_ = scalars.step + 1;
  model_.set_saved_state(scalars.gate.value, step_);
  if (!can_wait()) return reports_.push_back(finish(record_.all().to_doubles().data(), step));
  if (!history_) history_ = Tensor::empty({kMostQueued, record_.all().numel()}, Dtype::f64, model_.device());
  const auto row = static_cast<int64_t>(queued_.size());
  history_.rows(row, row + 1).copy_from(record_.all().reshaped({1, record_.all().numel()}));
  queued_.push_back(step);
}

void Trainer::fetch_queued() {
  if (queued_.empty()) return;
  const auto count = static_cast<int64_t>(queued_.size());
  const std::vector<double> numbers = history_.rows(0, count).to_doubles();
  const double* values = numbers.data();
  for (const Queued& step : std::exchange(queued_, {})) {
    reports_.push_back(finish(values, step));
    values += history_.dim(1);
  }
}

// What the host must know at once, or measures itself, is not queued.
bool Trainer::can_wait() const { return model_.device() == Device::cuda && !fakeln_ && !options_.checks_radial; }

void Trainer::prepare_calibration(const StepScalars& scalars, const Tensor& tokens) {
  if (fakeln_) return fakeln_->begin_step(scalars.step);
  if (scalars.step < options_.schedule.taper_start || calibration_.is_fixed()) return;
  fetch_queued();
  const auto count = static_cast<double>(tokens.numel());
  if (options_.norm_start == NormStart::unit) {
    calibration_.fix_unit_scales();
    return calibration_.fix_target(measure_batch(tokens, scalars.gate).scale_sum / count);
  }
  // Taper start at step 0: nothing has run yet, so the step's own batch is measured first.
  if (calibration_.state().observed_steps == 0) {
    const BatchMeasure batch = measure_batch(tokens, Gate{1.0});
    calibration_.observe(batch.norms, batch.scale_sum, tokens.numel());
  }
  calibration_.fix();
}

Trainer::BatchMeasure Trainer::measure_batch(const Tensor& tokens, Gate gate) const {
  const NoGrad no_grad;
  BatchMeasure measure;
  Tensors calibration;
  const Tensor sums = Tensor::empty({3}, Dtype::f64, model_.device(), "scale sums");
  for (int64_t window = 0; window < tokens.dim(0); ++window) {
    const HiddenStates states = model_.hidden(tokens.rows(window, window + 1), gate, gate.value > 0);
    add_calibration(calibration, states.calibration);
    anchor_.measure(sums, states.h, {});
    measure.scale_sum += sums.rows(0, 1).item();
  }
  for (const Tensor& sum : calibration) {
    const std::vector<double> values = sum.to_doubles();
    measure.norms.push_back({values[0], values[1]});
  }
  return measure;
}

StepReport Trainer::compute_gradients(Gate gate, const Tensor& tokens, const Tensor& targets) {
  fetch_queued();
  // Gradients go to memory of their own from here on.
  graph_.reset();
  form_ = {};
  run_gradients(set_batch({step_, 0, gate}, tokens, targets));
  return finish(record_.all().to_doubles().data(), {{0, 0, gate}, tokens.numel(), scale_target(), false});
}

// The gate as the kernels are to read it.
Gate Trainer::set_batch(const StepScalars& scalars, const Tensor& tokens, const Tensor& targets) {
  require(tokens.shape() == targets.shape() && tokens.shape().rank == 2 && tokens.numel() > 0,
          "training step: tokens are {} and targets {}, want the same [B, T]", describe(tokens), describe(targets));
  const Device device = model_.device();
  prepare_record(tokens.dim(0), tokens.dim(1));
  if (!scalars_) scalars_ = Tensor::empty({2}, Dtype::f64, device, "the scalars of a step");
  scalars_.copy_from(Tensor::from(std::vector<double>{scalars.gate.value, scalars.learning_rate}, {2}));
  if (device == Device::cpu) {
    tokens_ = tokens;
    targets_ = targets;
    return scalars.gate;
  }
  model_.check_ids(tokens, "tokens");
  model_.check_ids(targets, "targets");
  if (!tokens_ || tokens_.shape() != tokens.shape()) {
    graph_.reset();
    tokens_ = Tensor::empty(tokens.shape(), Dtype::i32, device, "the tokens of a step");
    targets_ = Tensor::empty(tokens.shape(), Dtype::i32, device, "the targets of a step");
  }
  tokens_.copy_from(tokens);
  targets_.copy_from(targets);
  return {scalars.gate.value, View(scalars_.rows(0, 1))};
}

void Trainer::prepare_record(int64_t windows, int64_t window) {
  const int64_t more = model_.device() == Device::cuda ? kMoreOnGpu : 1;
  micro_batch_ = options_.micro_batch_windows > 0
                     ? options_.micro_batch_windows
                     : default_micro_batch_windows(model_.config(), model_.precision(), window) * more;
  const int64_t micro_batches = (windows + micro_batch_ - 1) / micro_batch_;
  const auto gradients = static_cast<int64_t>(gradients_of(model_).size());
  const bool calibrates = wants_calibration() && !fakeln_;
  const int64_t norms = calibrates ? static_cast<int64_t>(model_.tapered_norms().size()) : 0;
  if (record_.has_shape(micro_batches, gradients, norms, model_.device())) return;
  fetch_queued();
  graph_.reset();
  history_ = {};
  record_ = StepRecord(micro_batches, gradients, norms, model_.device());
}

// One launch for a step of a form that was done before.
void Trainer::run(const Form& form, const std::function<void()>& work) {
  if (!options_.records_steps || !can_wait() || is_profiling()) return work();
  if (graph_ && form == form_) return graph_->launch();
  const auto cached = [] { return memory_use(Device::cuda).cached_bytes; };
  // Its first step leaves the memory of the next in the allocator's cache, unless some was taken or given back since.
  if (!(form == form_) || cached() < cache_of_form_) {
    graph_.reset();
    form_ = form;
    work();
    cache_of_form_ = cached();
    return;
  }
  for (const Parameter& p : model_.parameters()) p.compute.drop_grad();
  graph_ = std::make_unique<cuda::Graph>(work);
  graph_->launch();
}

void Trainer::run_gradients(Gate gate) {
  model_.zero_grad();
  kernels::fill(record_.all(), 0.0);
  identity_ = {};
  Tensors calibration;
  const int64_t windows = tokens_.dim(0);
  for (int64_t begin = 0; begin < windows; begin += micro_batch_) {
    const int64_t end = std::min(windows, begin + micro_batch_);
    run_micro_batch(gate, begin / micro_batch_, tokens_.rows(begin, end), targets_.rows(begin, end), calibration);
  }
  sum_gradient_squares(record_.squares(), gradients_of(model_));
  if (fakeln_) {
    fakeln_sums_ = calibration;
    return;
  }
  for (int64_t i = 0; i < record_.norms(); ++i) {
    record_.calibration().rows(2 * i, 2 * i + 2).copy_from(calibration[static_cast<size_t>(i)]);
  }
}

void Trainer::run_micro_batch(Gate gate, int64_t index, const Tensor& tokens, const Tensor& targets,
                              Tensors& calibration) {
  const std::optional<double> target = scale_target();
  const int64_t step_tokens = tokens_.numel();
  HiddenStates states = model_.hidden(tokens, gate, wants_calibration());
  states.h_input.set_retain_grad();
  const Tensor normed = options_.checks_radial ? states.normed : Tensor();
  if (options_.checks_radial) normed.set_retain_grad();
  const CrossEntropyResult ce = model_.cross_entropy(states.normed, targets, 1.0 / static_cast<double>(step_tokens));
  states.normed = {};
  Tensor objective = ce.loss;
  const Tensor scale = record_.entry(index, StepRecord::kScale);
  if (anchor_.is_active(target)) {
    objective = add(objective, anchor_.loss(scale, states.h, *target, step_tokens));
  } else {
    anchor_.measure(scale, states.h, target);
  }
  backward(objective);

  record_.entry(index, StepRecord::kCe).copy_from(ce.loss);
  record_.objective(index).copy_from(objective);
  record_.entry(index, StepRecord::kLogitSquares).copy_from(ce.logit_squares);
  add_calibration(calibration, states.calibration);
  if (const Tensor dh = states.h_input.grad()) {
    anchor_.take_apart(record_.entry(index, StepRecord::kRadialOfLoss), record_.entry(index, StepRecord::kRadialOfCe),
                       states.h, dh, target, step_tokens);
    // From here on dh is the gradient of the cross-entropy alone.
    if (options_.checks_radial) {
      identity_.add(check_radial_identity(model_, gate, states.h, dh, normed.grad(), step_tokens));
    }
  }
}

StepReport Trainer::finish(const double* values, const Queued& step) {
  const StepNumbers numbers(record_, values);
  double scale_sum = 0;
  StepReport report = report_of(numbers, step, scale_sum);
  const std::vector<NamedGradient> gradients = gradients_of(model_);
  const GradientNorm norm = norm_of_squares(numbers.squares(), gradients, options_.clip);
  report.gradient_norm = norm.norm;
  report.clip_factor = norm.clip_factor;
  if (!std::isfinite(report.loss) || !norm.is_finite) {
    report.bad_tensor = first_non_finite(model_).value_or(norm.is_finite ? "the loss" : norm.first_bad);
  } else if (fakeln_ && step.calibrates) {
    fakeln_->observe(fakeln_sums_);
  } else if (step.calibrates) {
    calibration_.observe(norm_calibrations(numbers.calibration(), record_.norms()), scale_sum, step.tokens);
  }
  return report;
}

StepReport Trainer::report_of(const StepNumbers& numbers, const Queued& step, double& scale_sum) const {
  const auto count = static_cast<double>(step.tokens);
  const auto radial = [&](const RadialSums& r) {
    return RadialReport{r.outward / count, r.norm > 0 ? r.magnitude / r.norm : 0.0};
  };
  StepReport report;
  ScaleSums scale;
  RadialSums of_loss, of_ce;
  double logit_squares = 0;
  for (int64_t i = 0; i < numbers.micro_batches(); ++i) {
    report.loss += numbers.objective(i);
    report.ce += *numbers.entry(i, StepRecord::kCe);
    logit_squares += *numbers.entry(i, StepRecord::kLogitSquares);
    scale.add(ScaleSums::from(numbers.entry(i, StepRecord::kScale)));
    of_loss.add(RadialSums::from(numbers.entry(i, StepRecord::kRadialOfLoss), step.tokens));
    of_ce.add(RadialSums::from(numbers.entry(i, StepRecord::kRadialOfCe), step.tokens));
  }
  scale_sum = scale.s;
  report.step = step.scalars.step;
  report.learning_rate = step.scalars.learning_rate;
  report.gate = step.scalars.gate.value;
  if (step.target) report.aux = scale.squared_deviation / count;
  report.scale = scale.s / count;
  report.greatest_scale = scale.greatest_s;
  report.logit_rms = std::sqrt(logit_squares / count / static_cast<double>(model_.config().vocab_size));
  report.radial_of_ce = radial(of_ce);
  report.radial_of_loss = radial(of_loss);
  if (options_.checks_radial) {
    report.identity = {identity_.expected / count, identity_.norm > 0 ? identity_.difference / identity_.norm : 0.0};
  }
  return report;
}

TrainerState Trainer::state() const {
  require(queued_.empty(), "trainer: its state is asked for while the numbers of {} steps are on the device",
          queued_.size());
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
