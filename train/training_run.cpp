#include "train/training_run.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "model/model_folder.h"
#include "train/metrics.h"
#include "train/progress.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Models have a config.json too; a run's says what it reads and where it goes.
bool is_run_config(const fs::path& file) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  if (!fs::exists(file)) return false;
  const auto config = try_parse_json(read_file(file, kMaxBytes));
  return config.is_object() && config.contains("data") && config.contains("output");
}

bool holds_run(const fs::path& folder) {
  return fs::exists(folder / kMetricsFile) || !complete_checkpoints(folder).empty() ||
         is_run_config(folder / kConfigFile);
}

// What a run's folder that is no run yet may not hold: files that others see.
std::string foreign_file(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.' && !name.starts_with("step-")) return name;
  }
  return "";
}

class Loop {
 public:
  Loop(Transformer& model, Trainer& trainer, const RunData& data, const RunOptions& options)
      : model_(model),
        trainer_(trainer),
        data_(data),
        options_(options),
        context_(options.context > 0 ? options.context : model.config().context),
        steps_(trainer.options().schedule.steps),
        sampler_(data.train, context_, options.seed),
        progress_(steps_, options.evaluate_every, options.is_quiet),
        tokens_(Tensor::empty({options.batch_windows, context_}, Dtype::i32)),
        targets_(Tensor::empty({options.batch_windows, context_}, Dtype::i32)) {
    if (!options.checkpoint.empty()) resume();
    metrics_.emplace(options.folder, trainer.next_step());
  }

  // Evaluations come at the top of the loop: one that is due where a run was saved is made again when it goes on, so
  // that the metrics are those of a run that was never stopped.
  RunResult run() {
    while (trainer_.next_step() < steps_) {
      if (is_evaluation_due()) evaluate_and_log(options_.evaluate_tokens);
      if (stop_requested()) return stop();
      take_step();
      if (stop_requested()) return stop();
      if (is_save_due()) save_on_the_way();
    }
    save();
    const Evaluation valid = evaluate_and_log(0);
    if (stop_requested()) return stop();
    metrics_->require_written();
    if (!std::isfinite(valid.loss)) give_up("the validation loss");
    RunResult result = result_so_far();
    result.valid = valid;
    return result;
  }

 private:
  void resume() {
    const DataPosition position = load_training_state(options_.checkpoint, trainer_);
    require_usage(position.seed == options_.seed, "seed: another than the run's; got {}, want {}", options_.seed,
                  position.seed);
    sampler_.seek(position.windows);
    progress_.say(fmt::format("resumed from {}", options_.checkpoint.string()));
  }

  void take_step() {
    const auto begin = std::chrono::steady_clock::now();
    sampler_.next(options_.batch_windows, tokens_.data<int32_t>(), targets_.data<int32_t>());
    trainer_.queue_step(tokens_, targets_);
    tokens_seen_ += tokens_.numel();
    ++queued_;
    std::vector<StepReport> reports;
    if (are_reports_due()) reports = trainer_.take_reports();
    seconds_queued_ += seconds_since(begin);
    if (!reports.empty()) log(reports);
  }

  // A device goes on with the next steps while the host waits for nothing.
  bool are_reports_due() const {
    constexpr int64_t kSteps = 10;
    return model_.device() == Device::cpu || queued_ == kSteps || trainer_.next_step() == steps_ ||
           is_evaluation_due() || is_save_due() || stop_requested();
  }

  void log(const std::vector<StepReport>& reports) {
    seconds_ += seconds_queued_;
    const double seconds = seconds_queued_ / static_cast<double>(queued_);
    seconds_queued_ = 0;
    queued_ = 0;
    for (const StepReport& report : reports) {
      metrics_->write(report, static_cast<double>(tokens_.numel()) / seconds);
      say_metrics_problem();
      progress_.step_done(report, seconds, tokens_.numel());
      check_finite(report);
    }
  }

  // Once for each trouble, not for each line.
  void say_metrics_problem() {
    const std::string& problem = metrics_->problem();
    if (!problem.empty() && !has_metrics_problem_) {
      progress_.say(fmt::format("{}: cannot be written now: {}; its lines wait",
                                (options_.folder / kMetricsFile).string(), problem));
    }
    has_metrics_problem_ = !problem.empty();
  }

  void check_finite(const StepReport& report) {
    loss_ = report.loss;
    if (report.bad_tensor.empty()) {
      bad_steps_ = 0;
      return;
    }
    progress_.say(fmt::format("step {}: {} is not finite, loss {}: nothing was updated", report.step, report.bad_tensor,
                              report.loss));
    if (++bad_steps_ < kMostBadSteps) return;
    save_what_was_good();
    give_up(report.bad_tensor);
  }

  // Nothing was updated since the last step that was finite. The older checkpoints all stay: the trouble may have begun
  // before it showed.
  void save_what_was_good() {
    if (first_non_finite(model_)) return;
    try {
      save_checkpoint(options_.folder, model_, trainer_, data_position(), &data_.tokenizer);
    } catch (const std::exception& error) {
      progress_.say(fmt::format("step {}: not saved: {}", trainer_.next_step(), error.what()));
    }
  }

  [[noreturn]] void give_up(const std::string& bad_tensor) {
    const std::vector<fs::path> checkpoints = complete_checkpoints(options_.folder);
    fail("training: stopped after step {}, loss {}: {} is not finite; last good checkpoint: {}",
         trainer_.next_step() - 1, loss_, bad_tensor, checkpoints.empty() ? "none" : checkpoints.front().string());
  }

  DataPosition data_position() const {
    return {options_.seed, sampler_.position(), data_.train.fingerprint(), data_.valid.fingerprint()};
  }

  bool is_save_due() const { return options_.save_every > 0 && trainer_.next_step() % options_.save_every == 0; }

  bool is_evaluation_due() const {
    const int64_t done = trainer_.next_step();
    return options_.evaluate_every > 0 && done > 0 && done % options_.evaluate_every == 0;
  }

  Evaluation evaluate_and_log(int64_t max_tokens) {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t step = trainer_.next_step();
    const Gate gate{model_.config().gate};
    const Evaluation evaluation =
        evaluate(model_, gate, windows_of(data_.valid, context_), &data_.tokenizer, max_tokens);
    if (stop_requested()) return evaluation;
    metrics_->write(step, gate.value, evaluation);
    say_metrics_problem();
    progress_.evaluation_done(seconds_since(begin));
    progress_.say(fmt::format("step {}/{}  validation loss {:.4f}  bits/byte {:.4f}", step, steps_, evaluation.loss,
                              evaluation.bits_per_byte));
    if (options_.after_evaluation && std::isfinite(evaluation.loss)) call_after_evaluation(step);
    return evaluation;
  }

  // It is for who watches: no text is worth the steps since the last checkpoint.
  void call_after_evaluation(int64_t step) {
    try {
      options_.after_evaluation(step);
    } catch (const std::exception& error) {
      progress_.say(fmt::format("step {}: no sample, the run goes on: {}", step, error.what()));
    }
  }

  fs::path save() {
    // Of parameters that are not finite nothing can come any more.
    if (const auto bad = first_non_finite(model_)) give_up(*bad);
    return save_finite();
  }

  fs::path save_finite() {
    const fs::path checkpoint = save_checkpoint(options_.folder, model_, trainer_, data_position(), &data_.tokenizer);
    remove_old_checkpoints(options_.folder, options_.keeping);
    return checkpoint;
  }

  // A full disk need not end a run of days: the older checkpoints are there, and room may come.
  void save_on_the_way() {
    if (const auto bad = first_non_finite(model_)) give_up(*bad);
    try {
      save_finite();
    } catch (const std::exception& error) {
      progress_.say(fmt::format("step {}: not saved, the run goes on: {}", trainer_.next_step(), error.what()));
    }
  }

  RunResult stop() {
    if (const std::vector<StepReport> reports = trainer_.take_reports(); !reports.empty()) log(reports);
    const fs::path checkpoint = save();
    metrics_->require_written();
    progress_.say(fmt::format("stopped after step {} of {}, saved {}; go on with: {}", trainer_.next_step(), steps_,
                              checkpoint.string(), options_.resume_hint));
    RunResult result = result_so_far();
    result.was_stopped = true;
    return result;
  }

  RunResult result_so_far() const {
    RunResult result;
    result.tokens_per_s = seconds_ > 0 ? static_cast<double>(tokens_seen_) / seconds_ : 0;
    result.steps = trainer_.next_step();
    result.parameters = parameter_count(model_.config());
    result.gate = model_.config().gate;
    return result;
  }

  Transformer& model_;
  Trainer& trainer_;
  const RunData& data_;
  const RunOptions& options_;
  int64_t context_;
  int64_t steps_;
  BatchSampler sampler_;
  Progress progress_;
  std::optional<MetricsFile> metrics_;
  Tensor tokens_, targets_;
  bool has_metrics_problem_ = false;
  int bad_steps_ = 0;
  double loss_ = 0;  // of the last step
  double seconds_ = 0;
  int64_t tokens_seen_ = 0;
  int64_t queued_ = 0;  // steps since the last reports
  double seconds_queued_ = 0;
};

}  // namespace

FolderLock prepare_run_folder(const fs::path& run, OutputUse use) {
  // Before anything is looked at: what another process is about to write is not judged. Taking it also tries that the
  // folder can be written.
  FolderLock lock(run);
  const bool is_used = holds_run(run);
  remove_stale_temporaries(run);
  const std::string foreign = is_used ? "" : foreign_file(run);
  require_usage(foreign.empty(), "output: {} is no run's folder, but holds a {}; want an empty folder or another name",
                run.string(), foreign);
  require_usage(!is_used || use != OutputUse::refuse,
                "output: {} holds a run already; want another folder, --resume or --overwrite", run.string());
  require_usage(use != OutputUse::resume || !complete_checkpoints(run).empty(), "resume: {} has no complete checkpoint",
                run.string());
  remove_partial_checkpoints(run);
  return lock;
}

void remove_run(const fs::path& run) {
  remove_all_checkpoints(run);
  for (const char* file : {kMetricsFile, kSummaryFile, kConfigFile}) fs::remove(run / file);
}

RunResult run_training(Transformer& model, Trainer& trainer, const RunData& data, const RunOptions& options) {
  return Loop(model, trainer, data, options).run();
}

}  // namespace taper
