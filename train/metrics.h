// What a run writes down, in its folder.
//
// metrics.jsonl, one JSON object a line. Of every training step:
//   step            k, from 0
//   loss ce aux     ce + lambda * aux; mean cross-entropy (nats); mean (s - s_tgt)^2, null before taper start
//   gate lr         g and the learning rate of the step
//   scale scale_max mean and greatest pre-logit scale s
//   logit_rms       root of the mean squared logit
//   grad_norm       of the gradient of loss, before clipping
//   radial_ce radial_ce_share radial_loss radial_loss_share
//                   gradient of ce, and of loss, at the pre-logit stream h, per token: mean of <dh, h/|h|>, and the sum
//                   of |<dh, h/|h|>| over the sum of |dh|
//   radial_expected radial_error
//                   only where the identity is checked (train/radial_check.h): what it says radial_ce is, and the sum
//                   over tokens of the difference over the sum of |dh|
//   loss_z grad_norm_z
//                   how many deviations loss and grad_norm are from their recent means (train/z_score.h); null in the
//                   first steps, and where the step was not finite, which does not count
//   tokens_per_s    of this step
//   bad             only where the step was not finite and nothing was updated: the first tensor found so
// Of every evaluation, after `step` updates:
//   step valid_loss perplexity bits_per_byte tokens gate
//
// summary.json: the results of a finished run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/evaluate.h"
#include "train/trainer.h"
#include "train/z_score.h"

namespace taper {

inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kSummaryFile = "summary.json";

class MetricsFile {
 public:
  // Goes on with RUN/metrics.jsonl after `steps` steps: keeps the lines of an earlier step and drops the rest, half
  // lines of a run that was killed included. The z-scores go on from what the kept lines say.
  MetricsFile(const std::filesystem::path& run, int64_t steps);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const StepReport& report, double tokens_per_s);
  void write(int64_t step, double gate, const Evaluation& evaluation);

  // Why the last line could not be written; empty where it was. What is missing waits in memory and is tried again with
  // the next line: a disk that was full for a while loses nothing. Error once 64 MiB wait.
  const std::string& problem() const { return problem_; }
  // Error where lines still wait.
  void require_written() const;

 private:
  std::string kept_lines(int64_t steps);
  void write_line(const std::string& line);

  std::filesystem::path path_;
  ZScore loss_, gradient_norm_;
  int descriptor_ = -1;
  std::string waiting_, problem_;
};

}  // namespace taper
