// What does it cost a pretrained GPT-2 to lose its norms? Fine-tuned as it is (vanilla), with all norms replaced by
// fixed scales one after another (fakeln), and with its norms tapered away (internal, all), on each corpus given.
// Published for FakeLN (arXiv 2507.02559), CE on OpenWebText / The Pile: GPT-2 small 3.1006 / 2.8450 as it is, 3.0126
// / 2.8511 vanilla, 3.0797 / 2.8852 without norms; the paper's all is competitive with it. Example:
//   gpt2-table --model gpt2 --data data/owt,data/pile --full --output runs/gpt2-table
// Without --model a small GPT-2 is pretrained first, on the first corpus.
#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "model/model_folder.h"
#include "tools/common/experiment.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

constexpr const char* kVariants[] = {"vanilla", "fakeln", "internal", "all"};
constexpr const char* kBaseName = "gpt2";
// Of the made-up base: its peak, and how much longer than a fine-tuning it is trained.
constexpr double kBasePeak = 2e-3;
constexpr int64_t kBaseLength = 3;

struct Options {
  ExperimentOptions common;
  std::string model;
  double anchor = 0.1;
};

class Gpt2Table {
 public:
  Gpt2Table(const Options& options, const CommonOptions& common)
      : options_(options), common_(common), corpora_(split_at_commas(options.common.data)) {}

  std::vector<PlannedRun> plan(const Scale& scale) const {
    std::vector<PlannedRun> runs;
    if (options_.model.empty()) runs.push_back(base(scale));
    for (size_t corpus = 0; corpus < corpora_.size(); ++corpus) {
      for (int64_t seed = first_seed(); seed < first_seed() + scale.seeds; ++seed) {
        for (const char* variant : kVariants) runs.push_back(planned(scale, corpus, variant, seed));
      }
    }
    return runs;
  }

  std::vector<ResultTable> tables(const Scale& scale, const ResultsByName& results) const {
    ResultTable table{"losses",
                      "Validation loss (nats) of the fine-tuned models, and against the one that kept its norms",
                      {"corpus", "variant", "seed", "before", "after", "difference from vanilla %", "gate"},
                      {},
                      ""};
    for (size_t corpus = 0; corpus < corpora_.size(); ++corpus) {
      for (int64_t seed = first_seed(); seed < first_seed() + scale.seeds; ++seed) {
        for (const char* variant : kVariants) table.rows.push_back(row(corpus, variant, seed, results));
      }
    }
    return {table};
  }

 private:
  int64_t first_seed() const { return static_cast<int64_t>(common_.seed); }
  static std::string run_name(size_t corpus, const std::string& variant, int64_t seed) {
    return fmt::format("corpus{}-{}-seed{}", corpus + 1, variant, seed);
  }

  PlannedRun base(const Scale& scale) const {
    ExperimentOptions small = options_.common;
    small.data = corpora_[0];
    if (small.width == 0) small.width = 128;
    if (small.layers == 0) small.layers = 4;
    if (small.heads == 0) small.heads = 4;
    Scale own = scale;
    own.steps = kBaseLength * scale.steps;
    own.peak = kBasePeak;
    nlohmann::ordered_json run =
        pretrain_options(small, common_, own, "1M", "baseline", 0, static_cast<int64_t>(common_.seed));
    run["arch"] = "gpt2";
    return {kBaseName, "pretrain", run, ""};
  }

  PlannedRun planned(const Scale& scale, size_t corpus, const std::string& variant, int64_t seed) const {
    ExperimentOptions own = options_.common;
    own.data = corpora_[corpus];
    nlohmann::ordered_json run = pretrain_options(own, common_, scale, "", variant, options_.anchor, seed);
    for (const char* key : {"size", "width", "layers", "heads"}) run.erase(key);
    if (variant == "vanilla" || variant == "internal") run["anchor"] = 0;
    run["model"] = options_.model.empty() ? (own.output / kBaseName).string() : options_.model;
    // As the published runs have it.
    run["lr-floor"] = 0.5;
    run["weight-decay"] = 0.01;
    return {run_name(corpus, variant, seed), "finetune", run, options_.model.empty() ? kBaseName : ""};
  }

  std::vector<Cell> row(size_t corpus, const std::string& variant, int64_t seed, const ResultsByName& results) const {
    const std::string name = run_name(corpus, variant, seed), vanilla = run_name(corpus, kVariants[0], seed);
    std::vector<Cell> cells{text_cell(std::filesystem::path(corpora_[corpus]).filename().string()), text_cell(variant),
                            text_cell(std::to_string(seed))};
    const auto found = results.find(name), reference = results.find(vanilla);
    if (found == results.end()) {
      cells.push_back(text_cell("failed"));
      cells.resize(7);
      return cells;
    }
    const std::string summary = name + "/summary.json: ";
    const double after = found->second.summary_number("valid_loss");
    const double other = reference == results.end() ? std::nan("") : reference->second.summary_number("valid_loss");
    cells.push_back(number_cell(found->second.summary_number("valid_loss_before"), 4, summary + "valid_loss_before"));
    cells.push_back(number_cell(after, 4, summary + "valid_loss"));
    cells.push_back(number_cell(100 * (after - other) / other, 2, name + " against " + vanilla + ", valid_loss", true));
    cells.push_back(number_cell(found->second.summary_number("gate"), 0, summary + "gate"));
    return cells;
  }

  const Options& options_;
  const CommonOptions& common_;
  std::vector<std::string> corpora_;
};

// FakeLN's published fine-tuning of GPT-2.
Scale published() {
  Scale scale;
  scale.sizes = {"small"};
  scale.seeds = 1;
  scale.steps = 300;
  scale.batch_tokens = 512 * 1024;
  scale.context = 1024;
  scale.peak = 6e-4;
  scale.warmup = scale.taper_start = 0.08;
  scale.taper_end = 0.6;
  return scale;
}

Scale scaled(const Options& options) {
  Scale scale = published();
  scale.sizes = {options.model.empty() ? "pretrained here" : "the model given"};
  scale.batch_tokens = 4096;
  scale.context = 256;
  return scale;
}

int run(int argc, char** argv) {
  Options options;
  Cli cli("gpt2-table", "What it costs a pretrained GPT-2 to lose its norms, on each corpus given.");
  options.common.declare(cli);
  cli.option("--model", options.model, "folder of the model to begin with")
      .value_name("DIR")
      .default_text("a small GPT-2 pretrained here");
  cli.option("--anchor", options.anchor, "its weight for all, and that of fakeln's auxiliary loss").at_least(0);
  const CommonOptions common = cli.parse(argc, argv);
  require_usage(options.common.sizes.empty(), "--sizes: the model's is what it is; want --model");
  if (!options.model.empty()) {
    const ExperimentOptions& o = options.common;
    require_usage(o.width == 0 && o.layers == 0 && o.heads == 0,
                  "--width, --layers, --heads: the model's are what they are; want --model or these");
    read_model_config(find_model_folder(options.model));
  }
  const Gpt2Table table(options, common);
  Experiment experiment;
  experiment.name = "gpt2-table";
  experiment.question = "What does it cost a pretrained GPT-2 to lose its norms?";
  experiment.full = published();
  experiment.source_of_full = "Published: FakeLN's fine-tuning of GPT-2 small (arXiv 2507.02559).";
  experiment.scaled = {scaled(options)};
  experiment.has_corpora = true;
  experiment.plan = [&](const Scale& scale) { return table.plan(scale); };
  experiment.tables = [&](const Scale& scale, const ResultsByName& results) { return table.tables(scale, results); };
  return run_experiment(experiment, options.common, cli, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
