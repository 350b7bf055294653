// The options that pretrain, finetune and train-bench share, so that the same flags mean the same step in both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"
#include "tools/common/cli.h"
#include "train/trainer.h"

namespace taper {

// What nobody trains with, and where counts still multiply without overflow.
inline constexpr int64_t kMostSteps = 1'000'000'000;
inline constexpr int64_t kMostBatchTokens = int64_t{1} << 27;
inline constexpr int64_t kMostWindows = int64_t{1} << 20;

struct ModelOptions {
  std::string size = "9M";
  std::string arch = "taper";
  std::string variant = "baseline";
  // 0: the size's own.
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t context = 0;
};

void declare_model_options(Cli& cli, ModelOptions& options);
// The whole configuration; UsageError where the options contradict each other.
ModelConfig model_config(const ModelOptions& options, int64_t vocab_size);

class ScheduleOptions {
 public:
  explicit ScheduleOptions(int64_t default_steps) : steps_(default_steps) {}

  void declare(Cli& cli);
  // After parse(). UsageError where the schedule contradicts itself.
  TrainerOptions trainer_options(Variant variant, std::optional<double> default_anchor = {}) const;
  int64_t steps() const { return steps_; }

 private:
  int64_t steps_;
  double peak_ = 6e-4;
  double floor_ = 0.1;
  double warmup_ = 0.1;
  double taper_start_ = 0.1;
  double taper_end_ = 0.6;
  bool allows_unfinished_ = false;
  double anchor_ = 0;
  double weight_decay_ = 0.1;
  double clip_ = 1.0;
  int64_t micro_batch_ = 0;
  const CliOption* taper_start_option_ = nullptr;
  const CliOption* anchor_option_ = nullptr;
};

// f32 or bf16.
Precision parse_precision(const CommonOptions& common);

}  // namespace taper
