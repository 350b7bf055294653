// Trains a transformer from scratch on a prepared folder (tools/prepare), with its norms kept (baseline) or tapered
// away (internal, all). Example:
//   pretrain --data data/stories --size 1M --variant all --steps 500 --batch-tokens 4096 --lr 3e-3 --output runs/all
#include <memory>

#include "engine/core/error.h"
#include "model/model_folder.h"
#include "tools/common/cli.h"
#include "tools/common/device.h"
#include "tools/common/run_flags.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"

namespace taper {
namespace {

// A resumed run must be the run that was begun.
Transformer resumed_model(const RunOptions& run, const ModelConfig& config, Precision precision) {
  Transformer model = load_model(run.checkpoint, precision);
  ModelConfig saved = model.config();
  saved.gate = config.gate;
  saved.step = config.step;
  require_usage(config_to_json(saved) == config_to_json(config),
                "resume: the options describe another model than the newest checkpoint; use --config {}/config.json",
                run.folder.string());
  return model;
}

// Without norms from the start the taper has neither length nor schedule.
void set_norm_start(TrainerOptions& options, const std::string& start) {
  if (start == "norms") return;
  require_usage(options.schedule.tapers, "--start: no norm tapers in a baseline; got {}, want another --variant",
                start);
  options.norm_start = start == "fixed-scale" ? NormStart::fixed : NormStart::unit;
  options.schedule.taper_start = options.schedule.taper_end = 0;
}

int run(int argc, char** argv) {
  RunFlags flags;
  ModelOptions model_options;
  ScheduleOptions schedule{2000};
  Cli cli("pretrain", "Trains a transformer from scratch.");
  flags.declare(cli);
  declare_model_options(cli, model_options);
  schedule.declare(cli);
  bool checks_radial = false;
  std::string norm_start = "norms";
  cli.choice("--start", norm_start, {"norms", "fixed-scale", "unit-scale"},
             "what tapering norms are when the run begins: norms, or gone already, their scale c fitted to the first "
             "batch, or 1");
  cli.flag("--check-radial", checks_radial,
           "check the identity on radial gradients at every step (radial_expected, radial_error in metrics.jsonl)");
  cli.allow_cuda();
  const CommonOptions common = cli.parse(argc, argv);
  const Device device = choose_device(common.device);
  TrainerOptions trainer_options = schedule.trainer_options(parse_variant(model_options.variant));
  trainer_options.checks_radial = checks_radial;
  set_norm_start(trainer_options, norm_start);
  const OpenedData data(flags.data);
  const ModelConfig config = model_config(model_options, data.tokenizer.vocab_size());
  RunOptions run = flags.run_options("pretrain", common, config.context);
  data.check_windows(config.context, run.seed);
  const std::unique_ptr<LivePage> page = flags.open_live_page();
  const FolderLock lock = flags.prepare_folder();
  if (flags.resumes) {
    check_run_config(cli, run);
    run.checkpoint = checkpoint_to_resume(flags.output);
    require_tokenizer_of(run.checkpoint.string(), data.train);
  }

  const Precision precision = parse_precision(common);
  Transformer model = flags.resumes ? resumed_model(run, config, precision) : Transformer(config, precision);
  if (!flags.resumes) model.initialise(common.seed);
  model.move_to(device);
  Trainer trainer(model, trainer_options);
  if (!flags.resumes) begin_run(cli, run);
  return train_and_report(model, trainer, data, flags, run, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
