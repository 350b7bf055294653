// Which anchor weight and which taper window to take? The variant `all` with each of several weights in the default
// window, and with the default weight in each of several windows, against the baseline. Example:
//   taper-sweep --data data/stories --budget 30 --output runs/taper-sweep
#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "tools/common/experiment.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

constexpr double kLaterStart = 0.15;
constexpr double kLatestEnd = 0.9;  // some of the run should be without norms

struct Options {
  ExperimentOptions common;
  std::string variant = "all";
  std::string anchors = "0,0.1,1";
  std::string starts, ends;  // empty: around the scale's
  double anchor = 0.1;
};

// One setting of the sweep.
struct Point {
  std::string name;
  double anchor = 0, start = 0, end = 0;
  bool is_baseline = false;
};

class Sweep {
 public:
  Sweep(const Options& options, const CommonOptions& common)
      : options_(options),
        common_(common),
        anchors_(parse_numbers("--anchors", options.anchors, 0)),
        starts_(numbers_or_none("--starts", options.starts)),
        ends_(numbers_or_none("--ends", options.ends)) {}

  std::vector<PlannedRun> plan(const Scale& scale) const {
    std::vector<PlannedRun> runs;
    each(scale, [&](const std::string& size, const Point& point, int64_t seed) {
      Scale own = scale;
      own.taper_start = point.start;
      own.taper_end = point.end;
      runs.push_back({run_name(size, point, seed), "pretrain",
                      pretrain_options(options_.common, common_, own, size,
                                       point.is_baseline ? "baseline" : options_.variant, point.anchor, seed),
                      ""});
    });
    return runs;
  }

  std::vector<ResultTable> tables(const Scale& scale, const ResultsByName& results) const {
    ResultTable table{"sweep",
                      "Variant " + options_.variant + ": validation loss (nats) against the baseline of the same seed",
                      {"model", "anchor", "taper start", "taper end", "seeds", "loss, mean", "difference %, mean",
                       "deviation", "s at the end"},
                      {},
                      "Taper start and end: parts of the steps. Deviation: of the difference between seeds, in "
                      "percentage points."};
    for (const std::string& size : scale.sizes) {
      for (const Point& point : points(scale)) table.rows.push_back(row(size, point, scale.seeds, results));
    }
    return {table};
  }

 private:
  static std::vector<double> numbers_or_none(const std::string& option, const std::string& text) {
    return text.empty() ? std::vector<double>{} : parse_numbers(option, text, 0);
  }

  std::vector<Point> points(const Scale& scale) const {
    std::vector<Point> all{{"baseline", 0, scale.taper_start, scale.taper_end, true}};
    const auto add = [&](double anchor, double start, double end) {
      const Point point{fmt::format("anchor{:g}-from{:g}-to{:g}", anchor, start, end), anchor, start, end};
      for (const Point& other : all) {
        if (other.name == point.name) return;
      }
      if (start < end) all.push_back(point);
    };
    for (const double anchor : anchors_) add(anchor, scale.taper_start, scale.taper_end);
    const std::vector<double> later{scale.taper_start, scale.taper_start + kLaterStart};
    const std::vector<double> longer{scale.taper_end / 2, scale.taper_end, std::min(2 * scale.taper_end, kLatestEnd)};
    for (const double start : starts_.empty() ? later : starts_) {
      for (const double end : ends_.empty() ? longer : ends_) add(options_.anchor, start, end);
    }
    return all;
  }

  template <class Body>
  void each(const Scale& scale, Body body) const {
    for (const std::string& size : scale.sizes) {
      for (int64_t seed = 0; seed < scale.seeds; ++seed) {
        for (const Point& point : points(scale)) body(size, point, first_seed() + seed);
      }
    }
  }

  std::vector<Cell> row(const std::string& size, const Point& point, int64_t seeds,
                        const ResultsByName& results) const {
    std::vector<double> losses, differences, scales;
    for (int64_t seed = first_seed(); seed < first_seed() + seeds; ++seed) {
      const auto found = results.find(run_name(size, point, seed));
      const auto base = results.find(run_name(size, points({})[0], seed));
      if (found == results.end()) continue;
      losses.push_back(found->second.summary_number("valid_loss"));
      scales.push_back(found->second.curve("scale").last());
      if (base == results.end()) continue;
      const double reference = base->second.summary_number("valid_loss");
      differences.push_back(100 * (losses.back() - reference) / reference);
    }
    const std::string from = "runs " + run_name(size, point, first_seed()) + " and those of other seeds";
    const auto text = [&](double value) { return point.is_baseline ? Cell{} : text_cell(short_number(value)); };
    return {text_cell(size),
            point.is_baseline ? text_cell("baseline") : text(point.anchor),
            text(point.start),
            text(point.end),
            number_cell(static_cast<double>(losses.size()), 0, from),
            number_cell(mean_of(losses), 4, from + ": valid_loss"),
            point.is_baseline ? Cell{} : number_cell(mean_of(differences), 2, from + ": valid_loss", true),
            point.is_baseline ? Cell{} : number_cell(deviation_of(differences), 2, from + ": valid_loss"),
            number_cell(mean_of(scales), 3, from + ": scale of the last step")};
  }

  int64_t first_seed() const { return static_cast<int64_t>(common_.seed); }
  static std::string run_name(const std::string& size, const Point& point, int64_t seed) {
    return fmt::format("{}-{}-seed{}", size, point.name, seed);
  }

  const Options& options_;
  const CommonOptions& common_;
  std::vector<double> anchors_, starts_, ends_;
};

int run(int argc, char** argv) {
  Options options;
  Cli cli("taper-sweep", "Which anchor weight and which taper window to take.");
  options.common.declare(cli);
  cli.choice("--variant", options.variant, {"internal", "all"}, "which norms taper away");
  cli.option("--anchors", options.anchors, "weights of the anchor, in the scale's taper window");
  cli.option("--starts", options.starts, "taper starts as parts of the steps, each with each of --ends")
      .default_text("the scale's, and 0.15 later");
  cli.option("--ends", options.ends, "taper ends as parts of the steps")
      .default_text("half, once and twice the scale's, 0.9 at most");
  cli.option("--anchor", options.anchor, "weight of the anchor in those windows").at_least(0);
  const CommonOptions common = cli.parse(argc, argv);
  const Sweep sweep(options, common);
  Experiment experiment;
  experiment.name = "taper-sweep";
  experiment.question = "Which anchor weight and which taper window to take?";
  experiment.full = published_scale();
  experiment.full.sizes = {"9M"};
  experiment.full.seeds = 3;
  experiment.scaled = {Scale{{"1M"}, 1}, Scale{{"1M"}, 2}};
  experiment.plan = [&](const Scale& scale) { return sweep.plan(scale); };
  experiment.tables = [&](const Scale& scale, const ResultsByName& results) { return sweep.tables(scale, results); };
  return run_experiment(experiment, options.common, cli, common);
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
