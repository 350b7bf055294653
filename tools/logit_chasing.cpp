// Without a final norm nothing keeps the pre-logit stream h from growing: once a token is classified with a margin, a
// longer h lowers the cross-entropy for ever, and the logits run away. The anchor holds the scale of h. Three kinds of
// runs at a usual and at a raised learning rate: with norms, without, and without but anchored by several weights.
// Published: scale and logits run away without the anchor, with it the gradient norms follow the baseline's. Every
// step's scale, logit RMS, gradient norm and radial gradient are in the runs' metrics.jsonl, and the identity on the
// radial gradient (train/radial_check.h) is checked at each. Example:
//   logit-chasing --data data/stories --budget 30 --output runs/logit-chasing
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/core/error.h"
#include "tools/common/experiment.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

// Points from the end of the taper to the end of the run at which a run is looked at.
constexpr int kReports = 8;
// What is read there is the mean over this part of the steps.
constexpr double kReportPart = 0.01;

// The run-away and the hold that the experiment is to show.
constexpr double kLeastGrowth = 1.5;
constexpr double kMostAnchoredGrowth = 1.3;
constexpr double kMostRounding = 1e-3;
constexpr double kMostError = 1e-4;
constexpr double kMostErrorInBf16 = 0.05;
constexpr double kMainAnchor = 0.1;

struct Options {
  ExperimentOptions common;
  std::string anchors = "0.03,0.1,0.3";
  std::string peaks;
};

struct Kind {
  std::string label;
  std::string name;
  std::string variant;
  double anchor = 0;
};

std::vector<Kind> kinds_of(const Options& options) {
  std::vector<Kind> kinds{{"baseline", "baseline", "baseline"}, {"all, no anchor", "all", "all"}};
  for (const double anchor : parse_numbers("--anchors", options.anchors, 1e-12)) {
    const std::string number = short_number(anchor);
    kinds.push_back({"all, anchor " + number, "all-anchor" + number, "all", anchor});
  }
  return kinds;
}

// A key of the metrics at the points of report.
struct Reports {
  std::vector<double> steps, values;

  double first() const { return values.front(); }
  double last() const { return values.back(); }
  double growth() const { return last() / first(); }
  bool grows_everywhere() const {
    return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
  }
};

Reports reports_of(const RunResults& run, const char* key, const Scale& scale) {
  const auto begin = std::floor(scale.taper_end * static_cast<double>(scale.steps));
  const auto end = static_cast<double>(scale.steps);
  const double length = std::max(1.0, std::floor(kReportPart * end));
  const Curve curve = run.curve(key);
  Reports reports;
  for (int i = 0; i <= kReports; ++i) {
    const double step = std::floor(begin + (end - length - begin) * i / kReports);
    reports.steps.push_back(step);
    reports.values.push_back(curve.mean(step, step + length));
  }
  return reports;
}

double mean_after_taper(const RunResults& run, const char* key, const Scale& scale) {
  return run.curve(key).mean(std::floor(scale.taper_end * static_cast<double>(scale.steps)), 1e18);
}

class LogitChasing {
 public:
  LogitChasing(const Options& options, const CommonOptions& common)
      : options_(options), common_(common), kinds_(kinds_of(options)) {
    if (!options.peaks.empty()) peaks_ = parse_numbers("--lrs", options.peaks, 1e-12);
  }

  std::vector<PlannedRun> plan(const Scale& scale) const {
    std::vector<PlannedRun> runs;
    each(scale, [&](const std::string& size, double peak, const Kind& kind, int64_t seed) {
      Scale own = scale;
      own.peak = peak;
      nlohmann::ordered_json run =
          pretrain_options(options_.common, common_, own, size, kind.variant, kind.anchor, seed);
      run["check-radial"] = true;
      runs.push_back({run_name(size, peak, kind, seed), "pretrain", run, ""});
    });
    return runs;
  }

  std::vector<ResultTable> tables(const Scale& scale, const ResultsByName& results) const {
    ResultTable ends{"growth",
                     "From the end of the taper (g = 0) to the end of the run; s is the mean pre-logit scale",
                     {"model", "peak", "run", "seed", "valid loss", "s at g = 0", "s at the end", "growth",
                      "grows at every report", "logit RMS at g = 0", "at the end", "gradient norm at the end",
                      "radial gradient of CE * 1000", "its share", "error of the identity"},
                     {},
                     "Radial gradient: mean over tokens and steps at g = 0 of <dCE/dh, h/|h|>, negative where descent "
                     "makes h longer; its share: of |dCE/dh|. Error: the greatest of any step. Read: means over "
                     "a hundredth of the steps."};
    ResultTable steps{"scale_by_step", "s by step", {"model", "peak", "run", "seed"}, {}, ""};
    ResultTable claims{
        "claims", "What was to be shown", {"model", "peak", "seed", "claim", "measured", "wanted", "holds"}, {}, ""};
    each(scale, [&](const std::string& size, double peak, const Kind& kind, int64_t seed) {
      const std::string name = run_name(size, peak, kind, seed);
      const std::vector<Cell> head{text_cell(size), text_cell(short_number(peak)), text_cell(kind.label),
                                   text_cell(std::to_string(seed))};
      const auto found = results.find(name);
      add_ends(ends, head, name, found == results.end() ? nullptr : &found->second, scale);
      if (found == results.end()) return;
      add_steps(steps, head, name, found->second, scale);
      add_claims(claims, head, kind, found->second, scale);
    });
    return {ends, claims, steps};
  }

 private:
  template <class Body>
  void each(const Scale& scale, Body body) const {
    for (const std::string& size : scale.sizes) {
      for (const double peak : peaks_of(scale)) {
        for (int64_t seed = 0; seed < scale.seeds; ++seed) {
          for (const Kind& kind : kinds_) body(size, peak, kind, static_cast<int64_t>(common_.seed) + seed);
        }
      }
    }
  }

  std::vector<double> peaks_of(const Scale& scale) const {
    return peaks_.empty() ? std::vector<double>{scale.peak, 3 * scale.peak} : peaks_;
  }

  static std::string run_name(const std::string& size, double peak, const Kind& kind, int64_t seed) {
    return fmt::format("{}-lr{}-{}-seed{}", size, short_number(peak), kind.name, seed);
  }

  static void add_ends(ResultTable& table, std::vector<Cell> row, const std::string& name, const RunResults* run,
                       const Scale& scale) {
    if (!run) {
      row.push_back(text_cell("failed"));
      row.resize(table.columns.size());
      table.rows.push_back(row);
      return;
    }
    const std::string metrics = name + "/metrics.jsonl: ";
    const Reports s = reports_of(*run, "scale", scale), rms = reports_of(*run, "logit_rms", scale);
    row.push_back(number_cell(run->summary_number("valid_loss"), 4, name + "/summary.json: valid_loss"));
    row.push_back(number_cell(s.first(), 3, metrics + "scale"));
    row.push_back(number_cell(s.last(), 3, metrics + "scale"));
    row.push_back(number_cell(s.growth(), 2, metrics + "scale, the end over g = 0"));
    row.push_back(text_cell(s.grows_everywhere() ? "yes" : "no"));
    row.push_back(number_cell(rms.first(), 3, metrics + "logit_rms"));
    row.push_back(number_cell(rms.last(), 3, metrics + "logit_rms"));
    row.push_back(number_cell(reports_of(*run, "grad_norm", scale).last(), 3, metrics + "grad_norm"));
    row.push_back(number_cell(1e3 * mean_after_taper(*run, "radial_ce", scale), 4, metrics + "radial_ce", true));
    row.push_back(number_cell(mean_after_taper(*run, "radial_ce_share", scale), 6, metrics + "radial_ce_share"));
    row.push_back(number_cell(run->curve("radial_error").greatest(), 8, metrics + "radial_error"));
    table.rows.push_back(row);
  }

  static void add_steps(ResultTable& table, std::vector<Cell> row, const std::string& name, const RunResults& run,
                        const Scale& scale) {
    const Reports s = reports_of(run, "scale", scale);
    if (table.columns.size() == row.size()) {
      for (const double step : s.steps) table.columns.push_back(fmt::format("step {:.0f}", step));
    }
    for (const double value : s.values) row.push_back(number_cell(value, 3, name + "/metrics.jsonl: scale"));
    table.rows.push_back(row);
  }

  void add_claims(ResultTable& table, const std::vector<Cell>& head, const Kind& kind, const RunResults& run,
                  const Scale& scale) const {
    const Reports s = reports_of(run, "scale", scale);
    const std::string from = run.folder().filename().string() + "/metrics.jsonl: ";
    const auto add = [&](const std::string& claim, const Cell& measured, const std::string& wanted, bool holds) {
      table.rows.push_back(
          {head[0], head[1], head[3], text_cell(claim), measured, text_cell(wanted), text_cell(holds ? "yes" : "no")});
    };
    const Cell growth = number_cell(s.growth(), 2, from + "scale");
    if (kind.name == "all") {
      const double radial = mean_after_taper(run, "radial_ce", scale);
      add("without anchor s grows", growth, fmt::format("at least {:g} times", kLeastGrowth),
          s.growth() >= kLeastGrowth);
      add("and does so at every report", text_cell(s.grows_everywhere() ? "yes" : "no"), "yes", s.grows_everywhere());
      add("its radial gradient of CE points inwards, * 1000", number_cell(1e3 * radial, 4, from + "radial_ce", true),
          "below 0", radial < 0);
    } else if (kind.anchor == kMainAnchor) {
      add(fmt::format("anchor {:g} holds s", kind.anchor), growth,
          fmt::format("at most {:g} times", kMostAnchoredGrowth), s.growth() <= kMostAnchoredGrowth);
    } else if (kind.name == "baseline") {
      const double share = mean_after_taper(run, "radial_ce_share", scale);
      add("the baseline's radial gradient of CE is zero to rounding: its share",
          number_cell(share, 8, from + "radial_ce_share"), fmt::format("below {:g}", kMostRounding),
          share < kMostRounding);
    }
    const double error = run.curve("radial_error").greatest();
    const double most = common_.precision == "bf16" ? kMostErrorInBf16 : kMostError;
    add(kind.label + ": the identity on the radial gradient, greatest error of any step",
        number_cell(error, 8, from + "radial_error"), fmt::format("below {:g}", most), error < most);
  }

  const Options& options_;
  const CommonOptions& common_;
  std::vector<Kind> kinds_;
  std::vector<double> peaks_;
};

int run(int argc, char** argv) {
  Options options;
  Cli cli("logit-chasing", "Scale and logits without a final norm, with and without the anchor.");
  options.common.declare(cli);
  cli.option("--anchors", options.anchors, "weights of the anchor to compare, with commas between them");
  cli.option("--lrs", options.peaks, "peaks of the learning rate, with commas between them")
      .default_text("--lr and three times it");
  const CommonOptions common = cli.parse(argc, argv);
  const LogitChasing chasing(options, common);
  Experiment experiment;
  experiment.name = "logit-chasing";
  experiment.question = "Do scale and logits run away without a final norm, and does the anchor hold them?";
  experiment.full = published_scale();
  experiment.full.sizes = {"30M"};
  experiment.full.seeds = 1;
  experiment.scaled = {Scale{{"1M"}, 1}};
  experiment.plan = [&](const Scale& scale) { return chasing.plan(scale); };
  experiment.tables = [&](const Scale& scale, const ResultsByName& all) { return chasing.tables(scale, all); };
  return run_experiment(experiment, options.common, cli, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
