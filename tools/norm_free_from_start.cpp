// Are norms needed at first, or could they be left out from the start? The norms tapered away against two models that
// never had them: with a fixed scale in their place, fitted to the first batch, and with nothing. The paper's argument
// for tapering is robustness, so each is trained at several learning rates. Example:
//   norm-free-from-start --data data/stories --budget 20 --output runs/norm-free-from-start
#include <cmath>

#include "engine/core/error.h"
#include "tools/common/experiment.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

struct Options {
  ExperimentOptions common;
  double anchor = 0.1;
  std::string peaks;
};

struct Kind {
  const char* label;
  const char* name;
  const char* variant;
  const char* start;
};

constexpr Kind kKinds[] = {
    {"baseline: norms for ever", "baseline", "baseline", "norms"},
    {"tapered: norms at first", "tapered", "all", "norms"},
    {"a fixed scale from the start", "fixed", "all", "fixed-scale"},
    {"nothing from the start", "none", "all", "unit-scale"},
};

class FromStart {
 public:
  FromStart(const Options& options, const CommonOptions& common) : options_(options), common_(common) {
    if (!options.peaks.empty()) peaks_ = parse_numbers("--lrs", options.peaks, 1e-12);
  }

  std::vector<PlannedRun> plan(const Scale& scale) const {
    std::vector<PlannedRun> runs;
    for (const std::string& size : scale.sizes) {
      for (int64_t seed = first_seed(); seed < first_seed() + scale.seeds; ++seed) {
        for (const double peak : peaks_of(scale)) {
          for (const Kind& kind : kKinds) runs.push_back(planned(scale, size, peak, kind, seed));
        }
      }
    }
    return runs;
  }

  std::vector<ResultTable> tables(const Scale& scale, const ResultsByName& results) const {
    ResultTable table{"losses",
                      "Validation loss (nats) against the tapered model of the same seed and learning rate",
                      {"model", "peak", "norms", "seed", "loss", "difference from tapered %", "greatest gradient norm",
                       "steps not finite"},
                      {},
                      "Failed: the run gave up, its loss or gradient not being finite step after step."};
    for (const std::string& size : scale.sizes) {
      for (const double peak : peaks_of(scale)) {
        for (int64_t seed = first_seed(); seed < first_seed() + scale.seeds; ++seed) {
          for (const Kind& kind : kKinds) table.rows.push_back(row(size, peak, kind, seed, results));
        }
      }
    }
    return {table};
  }

 private:
  PlannedRun planned(const Scale& scale, const std::string& size, double peak, const Kind& kind, int64_t seed) const {
    Scale own = scale;
    own.peak = peak;
    const bool is_baseline = std::string(kind.variant) == "baseline";
    nlohmann::ordered_json run =
        pretrain_options(options_.common, common_, own, size, kind.variant, is_baseline ? 0.0 : options_.anchor, seed);
    if (std::string(kind.start) != "norms") run["start"] = kind.start;
    return {run_name(size, peak, kind, seed), "pretrain", run, ""};
  }

  std::vector<Cell> row(const std::string& size, double peak, const Kind& kind, int64_t seed,
                        const ResultsByName& results) const {
    const std::string name = run_name(size, peak, kind, seed);
    std::vector<Cell> cells{text_cell(size), text_cell(short_number(peak)), text_cell(kind.label),
                            text_cell(std::to_string(seed))};
    const auto found = results.find(name), tapered = results.find(run_name(size, peak, kKinds[1], seed));
    if (found == results.end()) {
      cells.push_back(text_cell("failed"));
      cells.resize(8);
      return cells;
    }
    const double loss = found->second.summary_number("valid_loss");
    const double reference = tapered == results.end() ? std::nan("") : tapered->second.summary_number("valid_loss");
    const std::string metrics = name + "/metrics.jsonl: ";
    const auto good_steps = static_cast<double>(found->second.curve("grad_norm").steps.size());
    cells.push_back(number_cell(loss, 4, name + "/summary.json: valid_loss"));
    cells.push_back(number_cell(100 * (loss - reference) / reference, 2,
                                name + " against " + run_name(size, peak, kKinds[1], seed) + ", valid_loss", true));
    cells.push_back(number_cell(found->second.curve("grad_norm").greatest(), 2, metrics + "grad_norm"));
    cells.push_back(number_cell(found->second.summary_number("steps") - good_steps, 0, metrics + "grad_norm"));
    return cells;
  }

  std::vector<double> peaks_of(const Scale& scale) const {
    return peaks_.empty() ? std::vector<double>{scale.peak, 3 * scale.peak} : peaks_;
  }
  int64_t first_seed() const { return static_cast<int64_t>(common_.seed); }
  static std::string run_name(const std::string& size, double peak, const Kind& kind, int64_t seed) {
    return fmt::format("{}-lr{:g}-{}-seed{}", size, peak, kind.name, seed);
  }

  const Options& options_;
  const CommonOptions& common_;
  std::vector<double> peaks_;
};

int run(int argc, char** argv) {
  Options options;
  Cli cli("norm-free-from-start", "Norms tapered away, against norms that were never there.");
  options.common.declare(cli);
  cli.option("--anchor", options.anchor, "its weight, in all but the baseline").at_least(0);
  cli.option("--lrs", options.peaks, "peaks of the learning rate, with commas between them")
      .default_text("--lr and three times it");
  const CommonOptions common = cli.parse(argc, argv);
  const FromStart from_start(options, common);
  Experiment experiment;
  experiment.name = "norm-free-from-start";
  experiment.question = "Are norms needed at first, or could they be left out from the start?";
  experiment.full = published_scale();
  experiment.full.sizes = {"9M"};
  experiment.full.seeds = 3;
  experiment.scaled = {Scale{{"1M"}, 1}, Scale{{"1M"}, 2}};
  experiment.plan = [&](const Scale& scale) { return from_start.plan(scale); };
  experiment.tables = [&](const Scale& scale, const ResultsByName& all) { return from_start.tables(scale, all); };
  return run_experiment(experiment, options.common, cli, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
