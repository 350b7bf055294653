#include "tools/common/training_options.h"

#include "engine/core/error.h"

namespace taper {
namespace {

// Head size 64 where it divides the width, 32 for the narrowest.
int64_t default_heads(int64_t width) {
  if (width > 64 && width % 64 == 0) return width / 64;
  return width % 32 == 0 ? width / 32 : 1;
}

}  // namespace

void declare_model_options(Cli& cli, ModelOptions& options) {
  cli.choice("--size", options.size, size_names(), "of the model, by its parameters");
  cli.choice("--arch", options.arch, arch_names(), "norm, positions, biases and MLP");
  cli.choice("--variant", options.variant, {"baseline", "internal", "all"}, "which norms taper away in training");
  cli.option("--width", options.width, "of the residual stream").at_least(1).default_text("the size's");
  cli.option("--layers", options.layers, "blocks").at_least(1).default_text("the size's");
  cli.option("--heads", options.heads, "of attention").at_least(1).default_text("the size's");
  cli.option("--context", options.context, "greatest window").unit("tokens").at_least(1).default_text("the size's");
}

ModelConfig model_config(const ModelOptions& options, int64_t vocab_size) {
  ModelConfig config = named_config(options.size, options.arch);
  config.vocab_size = vocab_size;
  if (options.width > 0) {
    config.width = options.width;
    config.heads = default_heads(options.width);
  }
  if (options.layers > 0) config.layers = options.layers;
  if (options.context > 0) config.context = options.context;
  if (options.heads > 0) config.heads = options.heads;
  require_usage(config.width % config.heads == 0, "--heads: must divide the width; got {} heads and width {}",
                config.heads, config.width);
  set_arch(config, options.arch);
  set_variant(config, parse_variant(options.variant));
  try {
    check_config(config, "model");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return config;
}

void ScheduleOptions::declare(Cli& cli) {
  cli.option("--steps", steps_, "updates of the weights").unit("steps").range(1, kMostSteps);
  cli.option("--lr", peak_, "peak of the learning rate; it falls by a cosine").above(0);
  cli.option("--lr-floor", floor_, "part of the peak that the learning rate falls to").range(0, 1);
  cli.option("--warmup-fraction", warmup_, "part of the steps in which the learning rate rises").range(0, 1);
  taper_start_option_ = &cli.option("--taper-start", taper_start_, "part of the steps after which the norms taper")
                             .range(0, 1)
                             .default_text("the warm-up's");
  cli.option("--taper-end", taper_end_, "part of the steps after which they are gone").above(0);
  cli.flag("--allow-unfinished-taper", allows_unfinished_, "accept a taper that ends after the run");
  anchor_option_ = &cli.option("--anchor", anchor_, "weight of the pre-logit scale's anchor")
                        .at_least(0)
                        .default_text("0.1 where the final norm goes, else 0");
  cli.option("--weight-decay", weight_decay_, "of AdamW, on matrices alone").at_least(0);
  cli.option("--clip", clip_, "greatest norm of the gradient").above(0);
  cli.option("--micro-batch", micro_batch_, "windows computed at once, the rest is accumulated")
      .range(1, kMostWindows)
      .default_text("what fits the caches");
}

TrainerOptions ScheduleOptions::trainer_options(Variant variant, std::optional<double> default_anchor) const {
  ScheduleFractions fractions;
  fractions.warmup = warmup_;
  if (taper_start_option_->is_given()) fractions.taper_start = taper_start_;
  fractions.taper_end = taper_end_;
  TrainerOptions options;
  options.schedule = make_schedule(steps_, peak_, fractions, variant != Variant::baseline, allows_unfinished_);
  options.schedule.floor = floor_;
  options.anchor = anchor_option_->is_given() ? anchor_ : default_anchor.value_or(variant == Variant::all ? 0.1 : 0.0);
  options.weight_decay = weight_decay_;
  options.clip = clip_;
  options.micro_batch_windows = micro_batch_;
  return options;
}

Precision parse_precision(const CommonOptions& common) {
  return common.precision == "bf16" ? Precision::bf16 : Precision::f32;
}

}  // namespace taper
