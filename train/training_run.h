// A whole run: the loop over steps, with evaluations, checkpoints, metrics and the reaction to signals and to numbers
// that are not finite. The folder of a run, as others read it:
//   config.json     the options that repeat it, with version and seed
//   metrics.jsonl   train/metrics.h
//   summary.json    results, once it has finished
//   step-N/         checkpoints, train/checkpoint.h
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/batch_sampler.h"
#include "data/tokenizer.h"
#include "engine/io/folder_lock.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/trainer.h"

namespace taper {

// What to do where the output folder holds a run.
enum class OutputUse : uint8_t { refuse, resume, overwrite };

// Makes the folder, tries that it can be written, and clears what a killed run left half done. UsageError where it
// holds a run and neither resume nor overwrite was asked for, or is no run's folder but holds files; for resume, where
// there is nothing to resume; where another process trains in it. What is to be overwritten stays until remove_run().
// The lock is to be held as long as the run goes on.
[[nodiscard]] FolderLock prepare_run_folder(const std::filesystem::path& run, OutputUse use);

// Takes the run out of a prepared folder: its checkpoints and the files above; what else is there stays. To be called
// once nothing is left that could keep the new run from its first step.
void remove_run(const std::filesystem::path& run);

// Steps in a row whose loss or gradient is not finite, and that therefore update nothing, before a run gives up; then
// it saves a checkpoint, which holds the parameters as the last finite step left them. It gives up at once where a
// checkpoint is due and parameters are not finite.
inline constexpr int kMostBadSteps = 5;

struct RunOptions {
  std::filesystem::path folder;
  uint64_t seed = 42;
  int64_t context = 0;  // tokens of a window; 0: as many as the model has positions
  int64_t batch_windows = 16;
  int64_t evaluate_every = 0;       // steps; 0: at the end alone
  int64_t evaluate_tokens = 65536;  // of the evaluations on the way; 0: all. The last one takes all
  int64_t save_every = 0;           // steps; 0: at the end alone
  CheckpointKeeping keeping;
  std::filesystem::path checkpoint;  // of the run, to go on from, as newest_checkpoint() found it; empty: a new run
  bool is_quiet = false;
  std::string resume_hint;  // the command that goes on with this run, for the message after a signal
  // Called after each evaluation with a finite loss, with the number of updates: prints samples, for instance. What it
  // throws is said, and the run goes on.
  std::function<void(int64_t step)> after_evaluation;
};

struct RunData {
  const TokenDataset& train;
  const TokenDataset& valid;
  const Tokenizer& tokenizer;
};

struct RunResult {
  bool was_stopped = false;  // by a signal; a checkpoint was saved, and there is no evaluation
  Evaluation valid;
  double tokens_per_s = 0;  // of the training steps of this process
  int64_t steps = 0;
  int64_t parameters = 0;
  double gate = 1;
};

// Runs to the end of the schedule. A checkpoint on the way that cannot be written is said and tried again when the next
// is due; the older ones stay. The last one, and that of a stop, must be written: Error. Error, besides, where the run
// gives up, naming step, loss, the first bad tensor and the last good checkpoint.
RunResult run_training(Transformer& model, Trainer& trainer, const RunData& data, const RunOptions& options);

}  // namespace taper
