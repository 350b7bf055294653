// The experiments' programs, small: their tables are what their runs' files say, whether stopped on the way or not.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "engine/io/folder_lock.h"
#include "tests/support/prepared_stories.h"
#include "tools/common/experiment_scale.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Json json_file(const fs::path& path) { return Json::parse(read_file(path)); }

const Json& table_named(const Json& tables, const std::string& name) {
  for (const Json& table : tables["tables"]) {
    if (table["name"] == name) return table;
  }
  FAIL("no table " << name);
  return tables;
}

double loss_of(const PreparedStories& stories, const std::string& run) {
  return json_file(stories.folder() / run / "summary.json")["valid_loss"];
}

}  // namespace

TEST_CASE("tinystories-table: the table is what the runs' summaries say") {
  const PreparedStories stories;
  const Arguments arguments = tiny_experiment(stories, "table", 30) +
                              Arguments{"--seeds", "2", "--variants", "all-anchor,internal", "--baseline-lrs", "0.02"};
  const ProcessResult result = run_process(binary("tinystories-table"), arguments);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const Json tables = Json::parse(result.out);
  CHECK(tables == json_file(stories.folder() / "table/table.json"));

  const Json& rows = table_named(tables, "losses")["rows"];
  REQUIRE(rows.size() == 4);
  const char* labels[] = {"baseline", "internal", "all + anchor", "baseline, peak 0.02"};
  const char* names[] = {"baseline", "internal", "all-anchor", "baseline-lr0.02"};
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(names[i]);
    CHECK(rows[i][1]["value"] == labels[i]);
    CHECK(rows[i][2]["value"] == 2);
    double losses[2], differences[2];
    for (int s = 0; s < 2; ++s) {
      losses[s] = loss_of(stories, fmt::format("table/1M-{}-seed{}", names[i], 42 + s));
      const double base = loss_of(stories, fmt::format("table/1M-baseline-seed{}", 42 + s));
      differences[s] = 100 * (losses[s] / base - 1);
    }
    CHECK(rows[i][3]["value"].get<double>() == doctest::Approx((losses[0] + losses[1]) / 2).epsilon(1e-12));
    if (i == 0) continue;
    CHECK(rows[i][4]["value"].get<double>() == doctest::Approx((differences[0] + differences[1]) / 2).epsilon(1e-9));
    const double deviation = std::abs(differences[0] - differences[1]) / std::sqrt(2.0);
    CHECK(rows[i][5]["value"].get<double>() == doctest::Approx(deviation).epsilon(1e-6));
    CHECK(rows[i][6]["value"].get<double>() == doctest::Approx(std::min(differences[0], differences[1])).epsilon(1e-9));
    CHECK(rows[i][7]["value"].get<double>() == doctest::Approx(std::max(differences[0], differences[1])).epsilon(1e-9));
  }
  CHECK(table_named(tables, "runs")["rows"].size() == 8);
  CHECK(json_file(stories.folder() / "table/1M-all-anchor-seed43/config.json")["anchor"] == 0.1);
  CHECK(json_file(stories.folder() / "table/1M-internal-seed43/config.json")["anchor"] == 0.0);
  for (const char* file : {"losses.csv", "runs.csv", "scale.csv", "table.md", "plan.jsonl", "experiment.json"}) {
    CHECK(fs::exists(stories.folder() / "table" / file));
  }

  SUBCASE("called again it runs nothing; with other options it is refused, or begins anew") {
    const ProcessResult again = run_process(binary("tinystories-table"), arguments);
    CHECK(again.exit_code == 0);
    CHECK(again.out == result.out);
    CHECK(again.err.find("begins") == std::string::npos);
    Arguments other = arguments;
    other[5] = "31";
    const ProcessResult refused = run_process(binary("tinystories-table"), other);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("holds this experiment with another --steps; got 31, want 30") != std::string::npos);
    const ProcessResult anew = run_process(binary("tinystories-table"), other + Arguments{"--overwrite"});
    CHECK(anew.exit_code == 0);
    CHECK(json_file(stories.folder() / "table/1M-internal-seed42/summary.json")["steps"] == 31);
  }
}

TEST_CASE("tinystories-table: stopped and called again it writes the same files to the byte") {
  const PreparedStories stories;
  const auto arguments = [&](const std::string& output) {
    return tiny_experiment(stories, output, 200) + Arguments{"--seeds", "1", "--variants", "internal,all"};
  };
  const ProcessResult whole = run_process(binary("tinystories-table"), arguments("whole"));
  REQUIRE(whole.exit_code == 0);
  ProcessOptions stop;
  stop.signal = 2;
  stop.signal_after = "1M-internal-seed42 begins";
  const ProcessResult stopped = run_process(binary("tinystories-table"), arguments("stopped"), stop);
  CAPTURE(stopped.err);
  CHECK(stopped.exit_code == 130);
  CHECK_FALSE(fs::exists(stories.folder() / "stopped/table.json"));
  const ProcessResult resumed = run_process(binary("tinystories-table"), arguments("stopped"));
  CAPTURE(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.out == whole.out);
  for (const char* file : {"table.json", "table.md", "losses.csv", "runs.csv"}) {
    CAPTURE(file);
    CHECK(read_file(stories.folder() / "whole" / file) == read_file(stories.folder() / "stopped" / file));
  }
}

TEST_CASE("experiments: a small budget takes small steps before it takes few") {
  Scale narrow{{"1M"}, 1};
  narrow.taper_start = narrow.warmup = 0.08;
  narrow.taper_end = 0.6;
  const std::vector<Scale> scales = scales_for_budget({narrow, Scale{{"1M", "3M"}, 3}});
  REQUIRE(scales.size() == 4);
  CHECK(scales[0].batch_tokens * 4 == narrow.batch_tokens);
  CHECK(scales[1].batch_tokens * 2 == narrow.batch_tokens);
  CHECK(scales[0].warmup == 0.1);
  CHECK(scales[0].taper_end == 0.6);
  CHECK(scales_for_budget({Scale{{"1M"}, 1}})[0].taper_end == 0.5);
  CHECK(scales[2].warmup == narrow.warmup);

  const auto chosen = [&](std::vector<int64_t> steps, int64_t full) {
    size_t next = 0;
    return largest_scale(scales, full, [&](const Scale&) { return steps[next++]; });
  };
  const Scale few = chosen({640, 320, 160, 20}, 100000);
  CHECK(few.batch_tokens == scales[0].batch_tokens);
  CHECK(few.steps == 640);
  const Scale more = chosen({4000, 2000, 1000, 200}, 100000);
  CHECK(more.batch_tokens == narrow.batch_tokens);
  CHECK(more.sizes.size() == 1);
  CHECK(more.steps == 1000);
  CHECK(chosen({8000, 4000, 2000, 1000}, 100000).sizes.size() == 2);
  // Where all the published steps are few, they are enough.
  CHECK(chosen({2000, 1000, 500, 100}, 300).steps == 300);
  CHECK(chosen({2000, 1000, 500, 100}, 300).batch_tokens == narrow.batch_tokens);
  CHECK(chosen({280, 140, 70, 10}, 300).steps == 280);
  CHECK(chosen({0}, 300).steps == 0);  // nothing larger is asked about
}

TEST_CASE("experiments: what is wrong is said before any work, with exit code 2") {
  const PreparedStories stories;
  const auto refuses = [&](const Arguments& more, const std::string& message) {
    const ProcessResult result = run_process(
        binary("tinystories-table"), Arguments{"--data", stories.data(), "--output", stories.path("none")} + more);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK_FALSE(fs::exists(stories.folder() / "none/plan.jsonl"));
  };
  refuses({}, "Want --budget MINUTES, --full or --steps N");
  refuses({"--budget", "3", "--full"}, "--full");
  refuses({"--steps", "5", "--sizes", "1M,5M"}, "--sizes: unknown size; got '5M'");
  refuses({"--steps", "5", "--sizes", "1M,1M"}, "--sizes: got 1M twice");
  refuses({"--steps", "5", "--variants", "some"}, "--variants: got 'some'");
  refuses({"--steps", "5", "--baseline-lrs", "1e-3,x"}, "--baseline-lrs: got 'x'");
  refuses({"--steps", "5", "--baseline-lrs", "1e-3,0.001"}, "--baseline-lrs: got 0.001 twice");
  refuses({"--steps", "5", "--seeds", "9223372036854775807"}, "--seeds: out of range; got '9223372036854775807'");
  refuses({"--steps", "9223372036854775807"}, "--steps: out of range");
  refuses({"--steps", "5", "--batch-tokens", "6400000000000"}, "--batch-tokens: out of range");
  refuses({"--budget", "3", "--steps", "5"}, "--budget and --steps: each says how much");
  refuses({"--budget", "3", "--width", "15", "--heads", "2"}, "--heads: must divide the width");
  refuses({"--budget", "3", "--context", "3000"}, "--batch-tokens: must be a multiple of the context");
  refuses({"--budget", "0.001", "--context", "16", "--batch-tokens", "64", "--width", "16", "--layers", "1"},
          "--budget: too little for this experiment here");
  const ProcessResult no_data =
      run_process(binary("tinystories-table"), {"--data", stories.path("nowhere"), "--steps", "5", "--output", "x"});
  CHECK(no_data.exit_code == 2);
}

TEST_CASE("experiments: --overwrite removes nothing for an experiment that cannot begin") {
  const PreparedStories stories;
  const Arguments all = tiny_experiment(stories, "table", 3) + Arguments{"--seeds", "1", "--variants", "internal"};
  const ProcessResult finished = run_process(binary("tinystories-table"), all);
  CAPTURE(finished.err);
  REQUIRE(finished.exit_code == 0);
  const auto refuses = [&](const Arguments& arguments, const std::string& message) {
    const ProcessResult result = run_process(binary("tinystories-table"), arguments + Arguments{"--overwrite"});
    CAPTURE(message);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK(fs::exists(stories.folder() / "table/1M-internal-seed42/summary.json"));
    CHECK(run_process(binary("tinystories-table"), all).out == finished.out);
  };
  const auto with = [&](size_t option, const std::string& value) {
    Arguments arguments = all;
    arguments[option + 1] = value;
    return arguments;
  };
  const Arguments folders(all.begin(), all.begin() + 4), others(all.begin() + 6, all.end());
  refuses(folders + others, "Want --budget MINUTES, --full or --steps N");
  refuses(folders + others + Arguments{"--budget", "0.001"}, "--budget: too little for this experiment here");
  refuses(with(14, "2M"), "--sizes: unknown size; got '2M'");
  refuses(with(10, "3"), "--heads: must divide the width");
  refuses(with(12, "100000"), "--batch-tokens: must be a multiple of the context");
  refuses(with(16, "40"), "--batch-tokens: must be a multiple of the context; got 40, want a multiple of 16");
  refuses(all + Arguments{"--taper-end", "1"}, "taper-end: the run would end before the gate is 0");
  const FolderLock other(stories.folder() / "table");
  const ProcessResult held = run_process(binary("tinystories-table"), all + Arguments{"--overwrite"});
  CHECK(held.exit_code == 2);
  CHECK(held.err.find("is being written by process") != std::string::npos);
  CHECK(fs::exists(stories.folder() / "table/1M-internal-seed42/summary.json"));
}

TEST_CASE("experiments: what a folder holds of others, or of another experiment, stays") {
  const PreparedStories stories;
  const auto run = [&](const std::string& program, const std::string& output, const Arguments& more) {
    return run_process(binary(program), tiny_experiment(stories, output, 3) + Arguments{"--seeds", "1"} + more);
  };
  const auto refuses = [&](const ProcessResult& result, const std::string& message) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
  };
  const Arguments internal{"--variants", "internal"};
  for (const char* file : {"plan.jsonl", "table.md", "table.json", "losses.csv"}) {
    CAPTURE(file);
    const fs::path mine = stories.folder().write(std::string("of-") + file + "/" + file, "mine");
    refuses(run("tinystories-table", std::string("of-") + file, internal), "is there and no experiment's");
    CHECK(read_file(mine) == "mine");
  }
  REQUIRE(run("tinystories-table", "table", internal).exit_code == 0);
  // A call that was killed between its plan and its record has left the plan alone.
  fs::create_directories(stories.folder() / "killed");
  fs::copy_file(stories.folder() / "table/plan.jsonl", stories.folder() / "killed/plan.jsonl");
  CHECK(run("tinystories-table", "killed", internal).exit_code == 0);

  const std::string table = read_file(stories.folder() / "table/table.json");
  refuses(run("norm-free-from-start", "table", {}), "holds another experiment; got \"tinystories-table\"");
  CHECK(read_file(stories.folder() / "table/table.json") == table);

  // Two folders of data whose names differ after many letters.
  const std::string longer = std::string(70, 'a');
  for (const char* name : {"1", "2"}) fs::copy(stories.data(), stories.folder() / (longer + name));
  const auto on = [&](const std::string& name) {
    Arguments arguments = tiny_experiment(stories, "long", 3) + internal + Arguments{"--seeds", "1"};
    arguments[1] = stories.path(longer + name);
    return run_process(binary("tinystories-table"), arguments);
  };
  REQUIRE(on("1").exit_code == 0);
  refuses(on("2"), "holds this experiment with another --data");

  Json record = json_file(stories.folder() / "table/experiment.json");
  record["scale"]["seeds"] = 2000000000;
  stories.folder().write("table/experiment.json", record.dump());
  const ProcessResult damaged = run("tinystories-table", "table", internal);
  CAPTURE(damaged.err);
  CHECK(damaged.exit_code == 1);
  CHECK(damaged.err.find("experiment.json: is damaged; got 1 sizes, 2000000000 seeds") != std::string::npos);
}

TEST_CASE("experiments: --overwrite begins anew where the old experiment's files are damaged") {
  const PreparedStories stories;
  const Arguments all = tiny_experiment(stories, "table", 3) + Arguments{"--seeds", "1", "--variants", "internal"};
  const ProcessResult finished = run_process(binary("tinystories-table"), all);
  REQUIRE(finished.exit_code == 0);
  for (const char* file : {"experiment.json", "plan.jsonl"}) std::ofstream(stories.folder() / "table" / file) << "";
  CHECK(run_process(binary("tinystories-table"), all).exit_code != 0);
  const ProcessResult anew = run_process(binary("tinystories-table"), all + Arguments{"--overwrite"});
  CAPTURE(anew.err);
  CHECK(anew.exit_code == 0);
  CHECK(anew.err.find("1M-internal-seed42 begins") != std::string::npos);
  CHECK(anew.out == finished.out);
}

TEST_CASE("logit-chasing: its table is what the metrics say, and the identity on radial gradients holds") {
  const PreparedStories stories;
  const ProcessResult result =
      run_process(binary("logit-chasing"), tiny_experiment(stories, "chasing", 100) +
                                               Arguments{"--anchors", "0.1", "--lrs", "0.01", "--taper-end", "0.5"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const Json tables = Json::parse(result.out);
  const Json& rows = table_named(tables, "growth")["rows"];
  REQUIRE(rows.size() == 3);
  const char* names[] = {"baseline", "all", "all-anchor0.1"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string run = fmt::format("1M-lr0.01-{}-seed42", names[i]);
    CAPTURE(run);
    CHECK(rows[i][4]["value"].get<double>() == loss_of(stories, "chasing/" + run));
    std::istringstream lines(read_file(stories.folder() / "chasing" / run / "metrics.jsonl"));
    double radial = 0;
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (!json.contains("loss")) continue;
      CHECK(json["radial_error"] < 1e-4);
      CHECK(json["radial_expected"].get<double>() ==
            doctest::Approx(json["radial_ce"].get<double>()).epsilon(1e-3).scale(1e-2));
      if (json["step"] == 50) CHECK(rows[i][5]["value"] == json["scale"]);
      if (json["step"] == 99) CHECK(rows[i][6]["value"] == json["scale"]);
      if (json["step"] < 50) continue;
      radial += json["radial_ce"].get<double>();
      ++count;
    }
    CHECK(count == 50);
    CHECK(rows[i][12]["value"].get<double>() == doctest::Approx(1e3 * radial / count).epsilon(1e-9));
  }
}

TEST_CASE("taper-sweep, norm-free-from-start and gpt2-table: their losses are those of their runs") {
  const PreparedStories stories;
  const auto tables_of = [&](const std::string& program, const Arguments& more) {
    Arguments arguments = tiny_experiment(stories, program, 30) + more;
    if (program == "gpt2-table") arguments.erase(arguments.begin() + 14, arguments.begin() + 16);  // --sizes
    const ProcessResult result = run_process(binary(program), arguments);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out);
  };
  const Json sweep = tables_of("taper-sweep", {"--anchors", "0,1", "--starts", "0.1", "--ends", "0.05,0.8"});
  const Json& points = table_named(sweep, "sweep")["rows"];
  REQUIRE(points.size() == 4);  // a window that ends before it begins is none
  CHECK(points[2][5]["value"] == loss_of(stories, "taper-sweep/1M-anchor1-from0.05-to0.4-seed42"));
  CHECK(points[3][5]["value"] == loss_of(stories, "taper-sweep/1M-anchor0.1-from0.1-to0.8-seed42"));

  // The windows that nobody gave lie around the scale's, and each of them ends before the run does.
  const auto windows_of = [&](const std::string& output, const Arguments& more) {
    const ProcessResult result =
        run_process(binary("taper-sweep"), tiny_experiment(stories, output, 30) + Arguments{"--anchors", "0.1"} + more);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    std::set<std::string> windows;
    const Json tables = Json::parse(result.out);
    const Json& rows = table_named(tables, "sweep")["rows"];
    for (size_t i = 1; i < rows.size(); ++i) {
      windows.insert(rows[i][2]["value"].get<std::string>() + " to " + rows[i][3]["value"].get<std::string>());
    }
    return windows;
  };
  using Windows = std::set<std::string>;
  CHECK(windows_of("usual", {}) == Windows{"0.05 to 0.4", "0.05 to 0.2", "0.05 to 0.8", "0.2 to 0.4", "0.2 to 0.8"});
  CHECK(windows_of("longer", {"--warmup-fraction", "0.1", "--taper-end", "0.5"}) ==
        Windows{"0.1 to 0.5", "0.1 to 0.25", "0.1 to 0.9", "0.25 to 0.5", "0.25 to 0.9"});

  // A run that lost its metrics has no scale to tell.
  stories.folder().write("taper-sweep/1M-anchor1-from0.05-to0.4-seed42/metrics.jsonl", "");
  const Json without = tables_of("taper-sweep", {"--anchors", "0,1", "--starts", "0.1", "--ends", "0.05,0.8"});
  CHECK(table_named(without, "sweep")["rows"][2][8]["value"].is_null());
  CHECK(table_named(without, "sweep")["rows"][3] == points[3]);

  const Json from_start = tables_of("norm-free-from-start", {"--lrs", "0.01"});
  const Json& starts = table_named(from_start, "losses")["rows"];
  REQUIRE(starts.size() == 4);
  const char* names[] = {"baseline", "tapered", "fixed", "none"};
  for (size_t i = 0; i < 4; ++i) {
    const std::string run = fmt::format("norm-free-from-start/1M-lr0.01-{}-seed42", names[i]);
    CAPTURE(run);
    CHECK(starts[i][4]["value"] == loss_of(stories, run));
    const std::string metrics = read_file(stories.folder() / run / "metrics.jsonl");
    CHECK(Json::parse(metrics.substr(0, metrics.find('\n')))["gate"] == (i < 2 ? 1.0 : 0.0));
  }

  const Json gpt2 = tables_of("gpt2-table", {});
  const Json& variants = table_named(gpt2, "losses")["rows"];
  REQUIRE(variants.size() == 4);
  const char* kinds[] = {"vanilla", "fakeln", "internal", "all"};
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(kinds[i]);
    CHECK(variants[i][3]["value"].get<double>() == doctest::Approx(loss_of(stories, "gpt2-table/gpt2")).epsilon(1e-6));
    CHECK(variants[i][4]["value"] == loss_of(stories, fmt::format("gpt2-table/corpus1-{}-seed42", kinds[i])));
    CHECK(variants[i][6]["value"] == (i == 0 ? 1.0 : 0.0));
  }
}
