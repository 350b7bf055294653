#include "tools/common/run_flags.h"

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "model/model_folder.h"
#include "tools/common/run_settings.h"
#include "tools/common/run_tool.h"
#include "tools/common/training_options.h"
#include "train/metrics.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxSummaryBytes = 1 << 20;

void print_plan(const Transformer& model, const Trainer& trainer, const OpenedData& data, const RunOptions& run) {
  const Schedule& schedule = trainer.options().schedule;
  print_message(fmt::format("data: {} training and {} validation tokens, vocabulary {}", data.train.size(),
                            data.valid.size(), data.train.info().vocabulary_size));
  print_message(fmt::format("model: {} parameters, {}, {}", parameter_count(model.config()),
                            to_string(model.config().variant()), to_string(model.precision())));
  print_message(trainer.optimizer().summary());
  print_message(fmt::format("steps: {}, each {} windows of {} tokens; warm-up {}", schedule.steps, run.batch_windows,
                            run.context, schedule.warmup));
  if (schedule.tapers) {
    print_message(fmt::format("taper: from step {} to step {}, anchor {}", schedule.taper_start, schedule.taper_end,
                              trainer.options().anchor));
  }
  if (trainer.options().fakeln) {
    const std::vector<FakeLnEvent>& events = trainer.options().fakeln->events();
    print_message(fmt::format("fakeln: {} replacements from step {} to step {}, auxiliary loss {}", events.size(),
                              events.front().step, events.back().step, trainer.options().anchor));
  }
}

// All that repeats the run; how one call shows it is not part of it.
std::string settings_of(const Cli& cli) {
  return cli.settings_json({"--overwrite", "--json", "--quiet", "--profile", "--live"});
}

nlohmann::ordered_json summary_of(const RunResult& result) {
  nlohmann::ordered_json summary;
  summary["valid_loss"] = result.valid.loss;
  summary["bits_per_byte"] = result.valid.bits_per_byte;
  summary["tokens_per_s"] = result.tokens_per_s;
  summary["steps"] = result.steps;
  summary["parameters"] = result.parameters;
  summary["gate"] = result.gate;
  return summary;
}

// The data of a run may have moved, but is the same.
void require_data_of(const fs::path& checkpoint, const OpenedData& data) {
  const DataPosition begun = CheckpointManifest::read(checkpoint).data;
  const auto require_same = [](const TokenDataset& now, uint64_t fingerprint) {
    require_usage(now.fingerprint() == fingerprint,
                  "--data: {} holds other tokens than those the run was begun with; want the same data, wherever it "
                  "lies now",
                  now.name());
  };
  require_same(data.train, begun.train_data);
  require_same(data.valid, begun.valid_data);
}

// A run that is resumed after its end.
int repeat_summary(const fs::path& run, const CommonOptions& common) {
  const fs::path file = run / kSummaryFile;
  const auto summary = parse_json<nlohmann::ordered_json>(read_file(file, kMaxSummaryBytes), file.string());
  print_message(fmt::format("{}: the run has finished; nothing to go on with", run.string()));
  write_result(summary.dump(common.json ? -1 : 2) + "\n");
  return 0;
}

// A word of a shell's command line.
std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@%,";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace

void RunFlags::declare(Cli& cli) {
  cli.option("--data", data, "prepared folder to train on").value_name("DIR").required();
  cli.option("--output", output, "folder of the run").value_name("DIR").required();
  cli.option("--batch-tokens", batch_tokens, "of a step; a multiple of the context")
      .unit("tokens")
      .range(1, kMostBatchTokens);
  cli.option("--eval-every", evaluate_every, "between evaluations; 0: at the end alone").unit("steps").at_least(0);
  cli.option("--eval-tokens", evaluate_tokens, "of an evaluation on the way; 0: all, as at the end")
      .unit("tokens")
      .at_least(0);
  cli.option("--save-every", save_every, "between checkpoints; 0: at the end alone").unit("steps").at_least(0);
  cli.option("--keep-last", keeping.last, "newest checkpoints to keep").at_least(1);
  cli.option("--keep-every", keeping.every, "keep those of every so many steps as well; 0: no others")
      .unit("steps")
      .at_least(0);
  declare_sample_options(cli, samples);
  cli.option("--live", live_port, "port of a page on this machine that shows the run")
      .value_name("PORT")
      .range(1, 65535)
      .default_text("none");
  const CliOption& resume = cli.flag("--resume", resumes, "go on from the newest checkpoint in --output");
  const CliOption& overwrite = cli.flag("--overwrite", overwrites, "replace the run in --output");
  cli.exclusive({&resume, &overwrite});
}

int64_t windows_of_step(int64_t batch_tokens, int64_t context) {
  require_usage(batch_tokens % context == 0,
                "--batch-tokens: must be a multiple of the context; got {}, want a multiple of {}", batch_tokens,
                context);
  return batch_tokens / context;
}

RunOptions RunFlags::run_options(const std::string& program, const CommonOptions& common, int64_t context) const {
  RunOptions run;
  run.folder = output;
  run.seed = common.seed;
  run.context = context;
  run.batch_windows = windows_of_step(batch_tokens, context);
  run.evaluate_every = evaluate_every;
  run.evaluate_tokens = evaluate_tokens;
  run.save_every = save_every;
  run.keeping = keeping;
  run.is_quiet = common.quiet;
  run.resume_hint =
      fmt::format("{} --config {} --resume", program, shell_word((run.folder / kRunSettingsFile).string()));
  return run;
}

FolderLock RunFlags::prepare_folder() const {
  return prepare_run_folder(output, resumes      ? OutputUse::resume
                                    : overwrites ? OutputUse::overwrite
                                                 : OutputUse::refuse);
}

std::unique_ptr<LivePage> RunFlags::open_live_page() const {
  return live_port > 0 ? std::make_unique<LivePage>(live_port, output) : nullptr;
}

OpenedData::OpenedData(const std::string& folder)
    : train(open_training_data(folder)), valid(open_validation_data(folder)), tokenizer(Tokenizer::load(folder)) {
  require_tokenizer_of(folder, train);
}

void OpenedData::check_windows(int64_t context, uint64_t seed) const {
  windows_of(valid, context);
  BatchSampler(train, context, seed);
}

std::filesystem::path checkpoint_to_resume(const std::string& folder) {
  const auto checkpoint = newest_checkpoint(folder, print_message);
  require_usage(checkpoint.has_value(), "resume: {} has no whole checkpoint", folder);
  return *checkpoint;
}

int train_and_report(Transformer& model, Trainer& trainer, const OpenedData& data, const RunFlags& flags,
                     RunOptions run, const CommonOptions& common,
                     const std::function<void(nlohmann::ordered_json&)>& more) {
  if (!run.checkpoint.empty()) require_data_of(run.checkpoint, data);
  if (!run.checkpoint.empty() && fs::exists(run.folder / kSummaryFile)) return repeat_summary(run.folder, common);
  run.after_evaluation = sample_printer(model, data.tokenizer, flags.samples);
  print_plan(model, trainer, data, run);
  const RunResult result = run_training(model, trainer, {data.train, data.valid, data.tokenizer}, run);
  if (result.was_stopped) return 0;
  nlohmann::ordered_json summary = summary_of(result);
  if (more) more(summary);
  write_file(run.folder / kSummaryFile, summary.dump(2) + "\n");
  write_result(summary.dump(common.json ? -1 : 2) + "\n");
  return 0;
}

void begin_run(const Cli& cli, const RunOptions& run) {
  remove_run(run.folder);
  write_file(run.folder / kRunSettingsFile, settings_of(cli));
}

void check_run_config(const Cli& cli, const RunOptions& run) { require_same_settings(run.folder, settings_of(cli)); }

}  // namespace taper
