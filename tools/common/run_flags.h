// What the programs that train have in common, pretrain and finetune: the options of a run, its data, its folder, and
// the results at its end.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>

#include "data/prepared_data.h"
#include "model/transformer.h"
#include "tools/common/cli.h"
#include "tools/common/live_page.h"
#include "tools/common/training_samples.h"
#include "train/training_run.h"

namespace taper {

struct RunFlags {
  std::string data, output;
  int64_t batch_tokens = 8192;
  int64_t evaluate_every = 250;
  int64_t evaluate_tokens = 65536;
  int64_t save_every = 250;
  CheckpointKeeping keeping;
  bool resumes = false;
  bool overwrites = false;
  int live_port = 0;  // 0: no page
  SampleOptions samples;

  void declare(Cli& cli);

  // The rest of these after parse(). `program` is named in the hint after a signal. UsageError where the batch is not
  // a whole number of windows.
  RunOptions run_options(const std::string& program, const CommonOptions& common, int64_t context) const;
  // prepare_run_folder() as the flags say.
  [[nodiscard]] FolderLock prepare_folder() const;
  // The page of --live, which serves until it is destroyed; none without the option. UsageError where the port cannot
  // be had.
  [[nodiscard]] std::unique_ptr<LivePage> open_live_page() const;
};

// A prepared folder, opened.
struct OpenedData {
  TokenDataset train, valid;
  Tokenizer tokenizer;

  // UsageError where a side is missing or the tokenizer is not the one of the shards.
  explicit OpenedData(const std::string& folder);
  // UsageError where a window of the run does not fit into either side.
  void check_windows(int64_t context, uint64_t seed) const;
};

// Windows of a step. UsageError where the batch is not a whole number of them.
int64_t windows_of_step(int64_t batch_tokens, int64_t context);

// The newest checkpoint in `folder` that is whole; damaged ones are named before that.
std::filesystem::path checkpoint_to_resume(const std::string& folder);

// Runs, between the plan on stderr and the summary; `more` may add keys to the summary, which goes to summary.json and
// stdout. Returns the exit code. A run that is resumed and has its summary is finished: it is shown again, nothing is
// written.
int train_and_report(Transformer& model, Trainer& trainer, const OpenedData& data, const RunFlags& flags,
                     RunOptions run, const CommonOptions& common,
                     const std::function<void(nlohmann::ordered_json&)>& more = {});

// Begins a new run in its prepared folder: what --overwrite is to replace goes, and the options are written, so that
// `PROGRAM --config FILE --resume` goes on. To be called last, when nothing can be refused any more.
void begin_run(const Cli& cli, const RunOptions& run);
// The options of a call that resumes the run: UsageError where they would make it another
// (tools/common/run_settings.h).
void check_run_config(const Cli& cli, const RunOptions& run);

}  // namespace taper
