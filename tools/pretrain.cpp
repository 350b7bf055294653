// Trains a transformer from scratch on a prepared folder (tools/prepare), with its norms kept (baseline) or tapered
// away (internal, all). Example:
//   pretrain --data data/stories --size 1M --variant all --steps 500 --batch-tokens 4096 --lr 3e-3 --output runs/all
#include <nlohmann/json.hpp>

#include "data/prepared_data.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"
#include "tools/common/training_samples.h"
#include "train/checkpoint.h"
#include "train/training_run.h"

namespace taper {
namespace {

struct Options {
  ModelOptions model;
  ScheduleOptions schedule{2000};
  std::string data, output;
  int64_t batch_tokens = 8192;
  bool resumes = false;
  bool overwrites = false;
  RunOptions run;
  SampleOptions samples;
};

void declare(Cli& cli, Options& options) {
  cli.option("--data", options.data, "prepared folder to train on").value_name("DIR").required();
  cli.option("--output", options.output, "folder of the run").value_name("DIR").required();
  declare_model_options(cli, options.model);
  options.schedule.declare(cli);
  cli.option("--batch-tokens", options.batch_tokens, "of a step; a multiple of the context").unit("tokens").at_least(1);
  options.run.evaluate_every = options.run.save_every = 250;
  cli.option("--eval-every", options.run.evaluate_every, "between evaluations; 0: at the end alone")
      .unit("steps")
      .at_least(0);
  cli.option("--eval-tokens", options.run.evaluate_tokens, "of an evaluation on the way; 0: all, as at the end")
      .unit("tokens")
      .at_least(0);
  cli.option("--save-every", options.run.save_every, "between checkpoints; 0: at the end alone")
      .unit("steps")
      .at_least(0);
  cli.option("--keep-last", options.run.keep_checkpoints, "checkpoints to keep").at_least(1);
  declare_sample_options(cli, options.samples);
  const CliOption& resume = cli.flag("--resume", options.resumes, "go on from the newest checkpoint in --output");
  const CliOption& overwrite = cli.flag("--overwrite", options.overwrites, "replace the run in --output");
  cli.exclusive({&resume, &overwrite});
}

RunOptions run_options(const Options& options, const CommonOptions& common, int64_t context) {
  RunOptions run = options.run;
  require_usage(options.batch_tokens % context == 0,
                "--batch-tokens: must be a multiple of the context; got {}, want a multiple of {}",
                options.batch_tokens, context);
  run.folder = options.output;
  run.seed = common.seed;
  run.batch_windows = options.batch_tokens / context;
  run.resumes = options.resumes;
  run.is_quiet = common.quiet;
  run.resume_hint = fmt::format("pretrain --config {} --resume", (run.folder / "config.json").string());
  return run;
}

// A resumed run must be the run that was begun.
Transformer make_model(const Options& options, const ModelConfig& config, const CommonOptions& common) {
  const Precision precision = parse_precision(common);
  if (!options.resumes) {
    Transformer model(config, precision);
    model.initialise(common.seed);
    return model;
  }
  const auto checkpoint = newest_checkpoint(options.output, [](const std::string&) {});
  require_usage(checkpoint.has_value(), "resume: {} has no whole checkpoint", options.output);
  Transformer model = load_model(*checkpoint, precision);
  ModelConfig saved = model.config();
  saved.gate = config.gate;
  saved.step = config.step;
  require_usage(config_to_json(saved) == config_to_json(config),
                "resume: the options describe another model than {}; use --config {}/config.json", checkpoint->string(),
                options.output);
  return model;
}

void print_plan(const Transformer& model, const Trainer& trainer, const RunData& data, const RunOptions& run) {
  const Schedule& schedule = trainer.options().schedule;
  print_message(fmt::format("data: {} training and {} validation tokens, vocabulary {}", data.train.size(),
                            data.valid.size(), data.train.info().vocabulary_size));
  print_message(fmt::format("model: {} parameters, {}, {}", parameter_count(model.config()),
                            to_string(model.config().variant()), to_string(model.precision())));
  print_message(trainer.optimizer().summary());
  print_message(fmt::format("steps: {}, each {} windows of {} tokens; warm-up {}", schedule.steps, run.batch_windows,
                            model.config().context, schedule.warmup));
  if (schedule.tapers) {
    print_message(fmt::format("taper: from step {} to step {}, anchor {}", schedule.taper_start, schedule.taper_end,
                              trainer.options().anchor));
  }
}

int run(int argc, char** argv) {
  Options options;
  Cli cli("pretrain", "Trains a transformer from scratch.");
  declare(cli, options);
  const CommonOptions common = cli.parse(argc, argv);
  check_device(common);
  const TrainerOptions trainer_options = options.schedule.trainer_options(parse_variant(options.model.variant));
  const TokenDataset train = open_training_data(options.data);
  const TokenDataset valid = open_validation_data(options.data);
  const Tokenizer tokenizer = Tokenizer::load(options.data);
  const ModelConfig config = model_config(options.model, tokenizer.vocab_size());
  require_usage(train.info().vocabulary_size == static_cast<uint64_t>(config.vocab_size),
                "data: the tokenizer beside the shards is another; got {} tokens, want {}", config.vocab_size,
                train.info().vocabulary_size);
  RunOptions run = run_options(options, common, config.context);
  windows_of(valid, config.context);
  BatchSampler(train, config.context, run.seed);
  prepare_run_folder(run.folder, options.resumes      ? OutputUse::resume
                                 : options.overwrites ? OutputUse::overwrite
                                                      : OutputUse::refuse);
  Transformer model = make_model(options, config, common);
  Trainer trainer(model, trainer_options);
  if (!options.resumes)
    write_file(run.folder / "config.json", cli.settings_json({"--overwrite", "--json", "--quiet", "--profile"}));

  const RunData data{train, valid, tokenizer};
  run.after_evaluation = sample_printer(model, tokenizer, options.samples);
  print_plan(model, trainer, data, run);
  const RunResult result = run_training(model, trainer, data, run);
  if (result.was_stopped) return 0;
  nlohmann::ordered_json summary;
  summary["valid_loss"] = result.valid.loss;
  summary["bits_per_byte"] = result.valid.bits_per_byte;
  summary["tokens_per_s"] = result.tokens_per_s;
  summary["steps"] = result.steps;
  summary["parameters"] = result.parameters;
  summary["gate"] = result.gate;
  write_file(run.folder / "summary.json", summary.dump(2) + "\n");
  write_result(summary.dump(common.json ? -1 : 2) + "\n");
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
