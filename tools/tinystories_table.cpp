// Does a transformer without norms learn as well as one with them? Validation loss of every variant against the
// baseline of the same size and seed: the paper's main table. Published: internal +0.7 to +1.5 %, all +0.8 to +1.8 %,
// after long runs; short runs of small models may end below the baseline. Example:
//   tinystories-table --data data/stories --budget 30 --output runs/tinystories-table
#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "tools/common/experiment.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

// Of a variant to its baseline, in percent: the published ones lie above 0.
constexpr double kSuspiciousGap = -2;
constexpr const char* kGapNote =
    " A variant that is more than 2 % below its baseline says more of the baseline than of norms: where logits are "
    "tied "
    "and steps are few, the norm before them keeps them flat. More steps or a larger peak make up for some of that; "
    "--baseline-lrs compares peaks.";

struct Kind {
  std::string label;
  std::string name;  // within the run's
  std::string variant;
  bool is_anchored = false;
  double peak = 0;  // 0: the scale's
};

struct Options {
  ExperimentOptions common;
  double anchor = 0.1;
  std::string kinds = "baseline,internal,internal-anchor,all,all-anchor";
  std::string baseline_peaks;
};

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds{{"baseline", "baseline", "baseline"},
                                       {"internal", "internal", "internal"},
                                       {"internal + anchor", "internal-anchor", "internal", true},
                                       {"all", "all", "all"},
                                       {"all + anchor", "all-anchor", "all", true}};
  return kinds;
}

// The baseline first, whatever was asked for: all others are compared with it.
std::vector<Kind> chosen_kinds(const Options& options) {
  std::vector<Kind> chosen{all_kinds()[0]};
  const std::vector<std::string> names = split_at_commas(options.kinds);
  size_t known = 0;
  for (const Kind& kind : all_kinds()) {
    const bool is_asked_for = std::find(names.begin(), names.end(), kind.name) != names.end();
    known += is_asked_for ? 1 : 0;
    if (is_asked_for && kind.name != "baseline") chosen.push_back(kind);
  }
  require_usage(known == names.size(), "--variants: got '{}', want some of {}, each once", options.kinds,
                Options().kinds);
  if (options.baseline_peaks.empty()) return chosen;
  for (const double peak : parse_numbers("--baseline-lrs", options.baseline_peaks, 1e-12)) {
    chosen.push_back(
        {"baseline, peak " + short_number(peak), "baseline-lr" + short_number(peak), "baseline", false, peak});
  }
  return chosen;
}

class Table {
 public:
  Table(const Options& options, const CommonOptions& common)
      : options_(options), common_(common), kinds_(chosen_kinds(options)) {}

  std::vector<PlannedRun> plan(const Scale& scale) const {
    std::vector<PlannedRun> runs;
    for (const std::string& size : scale.sizes) {
      for (int64_t seed = 0; seed < scale.seeds; ++seed) {
        for (const Kind& kind : kinds_) {
          Scale own = scale;
          if (kind.peak > 0) own.peak = kind.peak;
          runs.push_back({run_name(size, kind, seed), "pretrain",
                          pretrain_options(options_.common, common_, own, size, kind.variant,
                                           kind.is_anchored ? options_.anchor : 0.0, first_seed() + seed),
                          ""});
        }
      }
    }
    return runs;
  }

  std::vector<ResultTable> tables(const Scale& scale, const ResultsByName& results) const {
    ResultTable means{
        "losses",
        "Validation loss (nats) against the baseline of the same size and seed",
        {"model", "variant", "seeds", "loss, mean", "difference %, mean", "deviation", "least", "greatest"},
        {},
        "Deviation: of the difference between seeds, in percentage points. Every run counts; none is "
        "dropped as an outlier."};
    ResultTable each{"runs",
                     "Every run: validation loss (nats), and its difference from the baseline of its seed",
                     {"model", "variant", "seed", "loss", "difference %", ""},
                     {},
                     "Outlier: further from the median of its seeds than three times their scaled median deviation; "
                     "told for four seeds and more."};
    for (const std::string& size : scale.sizes) {
      for (const Kind& kind : kinds_) add_rows(means, each, size, kind, scale.seeds, results);
    }
    if (has_suspicious_gap(means)) means.note += kGapNote;
    return {means, each};
  }

 private:
  int64_t first_seed() const { return static_cast<int64_t>(common_.seed); }
  std::string run_name(const std::string& size, const Kind& kind, int64_t seed) const {
    return fmt::format("{}-{}-seed{}", size, kind.name, first_seed() + seed);
  }

  static bool has_suspicious_gap(const ResultTable& means) {
    return std::any_of(means.rows.begin(), means.rows.end(), [](const std::vector<Cell>& row) {
      return row[4].value.is_number() && row[4].value.get<double>() < kSuspiciousGap;
    });
  }

  static double loss_of(const ResultsByName& results, const std::string& name) {
    const auto found = results.find(name);
    return found == results.end() ? std::nan("") : found->second.summary_number("valid_loss");
  }

  void add_rows(ResultTable& means, ResultTable& each, const std::string& size, const Kind& kind, int64_t seeds,
                const ResultsByName& results) const {
    std::vector<double> losses, differences;
    const size_t first_row = each.rows.size();
    for (int64_t seed = 0; seed < seeds; ++seed) {
      const std::string name = run_name(size, kind, seed), base = run_name(size, kinds_[0], seed);
      const double loss = loss_of(results, name), reference = loss_of(results, base);
      const double difference = 100 * (loss - reference) / reference;
      if (std::isfinite(loss)) losses.push_back(loss);
      if (std::isfinite(difference)) differences.push_back(difference);
      each.rows.push_back(
          {text_cell(size), text_cell(kind.label), text_cell(std::to_string(first_seed() + seed)),
           number_cell(loss, 4, name + "/summary.json: valid_loss"),
           number_cell(difference, 2, fmt::format("100 ({0} - {1}) / {1}, valid_loss of summary.json", name, base),
                       true),
           text_cell(std::isfinite(loss) ? "" : "failed")});
    }
    mark_outliers(each, first_row, differences);
    const std::string of = fmt::format("{} runs of {}", size, kind.label);
    const bool is_reference = &kind == &kinds_[0];
    const auto difference = [&](double value, const char* what) {
      return is_reference ? Cell{} : number_cell(value, 2, fmt::format("{} over the {}", what, of), true);
    };
    means.rows.push_back(
        {text_cell(size), text_cell(kind.label), number_cell(double(losses.size()), 0, "finished " + of),
         number_cell(mean_of(losses), 4, "mean over the " + of), difference(mean_of(differences), "mean difference"),
         is_reference ? Cell{} : number_cell(deviation_of(differences), 2, "standard deviation over the " + of),
         difference(differences.empty() ? std::nan("") : *std::min_element(differences.begin(), differences.end()),
                    "least difference"),
         difference(differences.empty() ? std::nan("") : *std::max_element(differences.begin(), differences.end()),
                    "greatest difference")});
  }

  static void mark_outliers(ResultTable& each, size_t first_row, const std::vector<double>& differences) {
    if (differences.size() < 4) return;
    const double median = median_of(differences);
    std::vector<double> distances;
    for (const double difference : differences) distances.push_back(std::abs(difference - median));
    // 1.4826: the median deviation of a normal distribution times this is its standard deviation.
    const double most = 3 * 1.4826 * median_of(distances);
    for (size_t i = first_row; i < each.rows.size(); ++i) {
      const Cell& cell = each.rows[i][4];
      const bool is_outlier = cell.value.is_number() && std::abs(cell.value.get<double>() - median) > most && most > 0;
      if (is_outlier) each.rows[i][5] = text_cell("outlier");
    }
  }

  const Options& options_;
  const CommonOptions& common_;
  std::vector<Kind> kinds_;
};

int run(int argc, char** argv) {
  Options options;
  Cli cli("tinystories-table", "Validation loss of every variant, against the baseline: the paper's main table.");
  options.common.declare(cli);
  cli.option("--variants", options.kinds, "to compare, with commas between them; the baseline is always there");
  cli.option("--anchor", options.anchor, "its weight where there is one").above(0);
  cli.option("--baseline-lrs", options.baseline_peaks,
             "more baselines, of other peaks of the learning rate, with commas between them")
      .default_text("none");
  const CommonOptions common = cli.parse(argc, argv);
  const Table table(options, common);
  Experiment experiment;
  experiment.name = "tinystories-table";
  experiment.question = "Does a transformer without norms learn as well as one with them?";
  experiment.full = published_scale();
  experiment.scaled = {Scale{{"1M"}, 2}, Scale{{"1M"}, 3}, Scale{{"1M", "3M"}, 3}, Scale{{"1M", "3M", "9M"}, 3},
                       Scale{{"1M", "3M", "9M", "30M"}, 6}};
  experiment.plan = [&](const Scale& scale) { return table.plan(scale); };
  experiment.tables = [&](const Scale& scale, const ResultsByName& results) { return table.tables(scale, results); };
  return run_experiment(experiment, options.common, cli, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
