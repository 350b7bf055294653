// Goes on training a model whose norms are live: as it is (vanilla), with its norms tapered away (internal: those of
// the blocks; all: the final one too), or with all of them replaced one after another (fakeln). Example:
//   finetune --model gpt2 --data data/stories --variant internal --steps 300 --output runs/gpt2-internal
#include <nlohmann/json.hpp>

#include <cmath>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "model/model_folder.h"
#include "model/with_variant.h"
#include "tools/common/cli.h"
#include "tools/common/device.h"
#include "tools/common/run_flags.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

// In the run's folder: the validation loss of the model that the run began with, for the summary of a resumed run.
constexpr const char* kBeforeFile = "before.json";

// Default weight of FakeLN's auxiliary loss, which stands in the anchor's place.
constexpr double kFakeLnAuxiliary = 0.1;

// FakeLN's numbers; those not given are its defaults for the length of the run.
struct FakeLnOptions {
  FakeLnTimes times;
  double momentum = kEmaDecay;
  std::vector<std::pair<const CliOption*, double FakeLnTimes::*>> given;

  void declare(Cli& cli);
  FakeLnSchedule schedule(int64_t layers, int64_t steps) const;
};

struct Options {
  RunFlags run;
  ScheduleOptions schedule{300};
  std::string model;
  std::string variant = "internal";
  int64_t context = 0;
  FakeLnOptions fakeln;

  bool is_fakeln() const { return variant == "fakeln"; }
  // That of the gate: FakeLN has none.
  Variant norm_variant() const {
    return variant == "vanilla" || is_fakeln() ? Variant::baseline : parse_variant(variant);
  }
};

void FakeLnOptions::declare(Cli& cli) {
  const auto time = [&](const char* name, double FakeLnTimes::*member, const char* help) {
    const std::string text =
        fmt::format("{}, in proportion where the run is shorter than {}", times.*member, kFakeLnSteps);
    given.emplace_back(&cli.option(name, times.*member, help).unit("steps").range(0, kMostSteps).default_text(text),
                       member);
  };
  time("--fakeln-start", &FakeLnTimes::start, "fakeln: until the first replacement");
  time("--fakeln-gap-norm2", &FakeLnTimes::gap_norm2, "fakeln: from block to block, norms before MLPs");
  time("--fakeln-gap-qk", &FakeLnTimes::gap_qk, "fakeln: from block to block, norms of q and k");
  time("--fakeln-gap-v", &FakeLnTimes::gap_v, "fakeln: from block to block, norms of v");
  time("--fakeln-gap-last", &FakeLnTimes::gap_last,
       "fakeln: between the final norm, position 0's average and end-of-text's");
  cli.option("--fakeln-momentum", momentum, "fakeln: of the running averages").at_least(0).below(1);
}

FakeLnSchedule FakeLnOptions::schedule(int64_t layers, int64_t steps) const {
  FakeLnTimes all = default_fakeln_times(steps);
  for (const auto& [option, member] : given) {
    if (option->is_given()) all.*member = times.*member;
  }
  return FakeLnSchedule(layers, steps, all);
}

void declare(Cli& cli, Options& options) {
  cli.option("--model", options.model, "folder of the model to begin with, or of a run: its newest checkpoint")
      .value_name("DIR")
      .required();
  options.run.declare(cli);
  cli.choice("--variant", options.variant, {"vanilla", "fakeln", "internal", "all"}, "which norms go, and how");
  cli.option("--context", options.context, "of a window").unit("tokens").at_least(1).default_text("the model's");
  options.schedule.declare(cli);
  options.fakeln.declare(cli);
}

// The ids of the data must mean to the model what they meant when it was trained.
void check_vocabulary(const Options& options, const fs::path& folder, const ModelConfig& config,
                      const OpenedData& data) {
  require_usage(data.tokenizer.vocab_size() <= config.vocab_size,
                "--data: {} has ids that {} does not know; got a vocabulary of {}, want at most {}; prepare the texts "
                "with the model's tokenizer",
                options.run.data, options.model, data.tokenizer.vocab_size(), config.vocab_size);
  require_tokenizer_of(folder.string(), data.train);
}

int64_t window_of(const Options& options, const ModelConfig& config) {
  require_usage(options.context <= config.context, "--context: the model has fewer positions; got {}, want at most {}",
                options.context, config.context);
  return options.context > 0 ? options.context : config.context;
}

// All that can be wrong between model, data and options, before any work.
void check_fit(const Options& options, const fs::path& folder, const ModelConfig& config, const OpenedData& data,
               const CommonOptions& common) {
  check_vocabulary(options, folder, config, data);
  const RunOptions run = options.run.run_options("finetune", common, window_of(options, config));
  data.check_windows(run.context, run.seed);
  if (options.is_fakeln()) options.fakeln.schedule(config.layers, options.schedule.steps());
}

// Overwriting a run would remove the model that is to be tuned before the tuned one is there.
void check_model_stays(const Options& options, const fs::path& folder) {
  if (!options.run.overwrites) return;
  for (const fs::path& checkpoint : complete_checkpoints(options.run.output)) {
    require_usage(!fs::equivalent(checkpoint, folder),
                  "--overwrite: the run in {} holds the model to begin with, {}; want another --output",
                  options.run.output, folder.string());
  }
}

// The model to begin with; `loss` becomes its loss on the validation data. A stop is left to the caller.
Transformer first_model(const Options& options, const OpenedData& data, const CommonOptions& common, Device device,
                        std::optional<FolderLock>& lock, double& loss) {
  const fs::path folder = find_model_folder(options.model);
  Transformer source = load_model(folder, parse_precision(common), print_message);
  check_norms_are_live(source.config(), "--model: " + options.model);
  check_fit(options, folder, source.config(), data, common);
  check_model_stays(options, folder);
  const auto bad = first_non_finite(source);
  require(!bad, "--model: {} has values that are not finite; first in {}", options.model, bad.value_or(""));
  lock.emplace(options.run.prepare_folder());
  const WindowSource windows = windows_of(data.valid, window_of(options, source.config()));
  source.move_to(device);
  loss = evaluate(source, Gate{1.0}, windows, &data.tokenizer).loss;
  if (!stop_requested()) {
    require(std::isfinite(loss), "--model: {} has a validation loss that is not finite", options.model);
    print_message(fmt::format("{}: validation loss {:.4f} to begin with", options.model, loss));
  }
  source.move_to(Device::cpu);
  if (!options.is_fakeln()) return with_variant(source, options.norm_variant());
  return with_norms_in_turn(source, data.tokenizer.end_of_text().value_or(-1));
}

Transformer resumed_model(const Options& options, const fs::path& checkpoint, const OpenedData& data,
                          const CommonOptions& common) {
  Transformer model = load_model(checkpoint, parse_precision(common));
  const Variant variant = options.is_fakeln() ? Variant::all : options.norm_variant();
  require_usage(model.config().variant() == variant,
                "--variant: another than the run's; got {}, want that of {}/config.json", options.variant,
                options.run.output);
  check_fit(options, find_model_folder(options.run.output), model.config(), data, common);
  return model;
}

double loss_before(const fs::path& run) {
  const fs::path file = run / kBeforeFile;
  const nlohmann::json json = parse_json(read_file(file, 1 << 16), file.string());
  require(json.is_object() && json.contains("valid_loss") && json["valid_loss"].is_number(),
          "{}: is damaged; want {{\"valid_loss\": NUMBER}}", file.string());
  return json["valid_loss"].get<double>();
}

int run(int argc, char** argv) {
  Options options;
  Cli cli("finetune", "Goes on training a model and takes its norms away.");
  declare(cli, options);
  cli.allow_cuda();
  const CommonOptions common = cli.parse(argc, argv);
  const Device device = choose_device(common.device);
  TrainerOptions trainer_options = options.schedule.trainer_options(
      options.norm_variant(), options.is_fakeln() ? std::optional(kFakeLnAuxiliary) : std::nullopt);
  const OpenedData data(options.run.data);
  const std::unique_ptr<LivePage> page = options.run.open_live_page();
  std::optional<FolderLock> lock;
  fs::path checkpoint;
  double before = 0;
  if (options.run.resumes) {
    lock.emplace(options.run.prepare_folder());
    checkpoint = checkpoint_to_resume(options.run.output);
  }
  Transformer model = options.run.resumes ? resumed_model(options, checkpoint, data, common)
                                          : first_model(options, data, common, device, lock, before);
  model.move_to(device);
  if (stop_requested()) return 0;
  RunOptions run = options.run.run_options("finetune", common, window_of(options, model.config()));
  run.checkpoint = checkpoint;
  if (options.run.resumes) check_run_config(cli, run);
  if (options.is_fakeln()) {
    trainer_options.fakeln = options.fakeln.schedule(model.config().layers, options.schedule.steps());
    trainer_options.ema_decay = options.fakeln.momentum;
  }
  Trainer trainer(model, trainer_options);
  if (!options.run.resumes) {
    begin_run(cli, run);
    write_file(run.folder / kBeforeFile, nlohmann::json{{"valid_loss", before}}.dump() + "\n");
  }
  return train_and_report(model, trainer, data, options.run, run, common, [&](nlohmann::ordered_json& summary) {
    summary["variant"] = options.variant;
    summary["valid_loss_before"] = loss_before(run.folder);
  });
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
