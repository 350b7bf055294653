// The page of a report: everything it shows is escaped, every number on it stands in the file that it names, and no
// plot is empty.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <regex>

#include "engine/core/error.h"
#include "tests/support/prepared_stories.h"
#include "tests/support/shared.h"
#include "tools/common/html.h"
#include "tools/common/plot.h"

using namespace taper;
using namespace taper::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

bool has_gnuplot() { return std::system("gnuplot --version >/dev/null 2>&1") == 0; }

std::string unescaped(std::string text) {
  for (const auto& [entity, character] : {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&quot;", "\""),
                                          std::pair("&#39;", "'"), std::pair("&amp;", "&")}) {
    for (size_t at = 0; (at = text.find(entity, at)) != std::string::npos; at += 1) {
      text.replace(at, std::string(entity).size(), character);
    }
  }
  return text;
}

// What stands between a tag that has data-from and the next tag, and what the attribute says.
struct Shown {
  std::string from, text;
};

std::vector<Shown> shown_in(const std::string& html) {
  static const std::regex element(R"re(<[a-z0-9]+[^>]* data-from="([^"]*)"[^>]*>([^<]*)<)re");
  std::vector<Shown> all;
  for (std::sregex_iterator it(html.begin(), html.end(), element), end; it != end; ++it) {
    all.push_back({unescaped((*it)[1]), unescaped((*it)[2])});
  }
  return all;
}

// What stands between each `begin` and the `end` behind it. Plots are too long for std::regex, which calls itself for
// every character.
std::vector<std::string> between(const std::string& text, const std::string& begin, const std::string& end) {
  std::vector<std::string> all;
  for (size_t from = text.find(begin); from != std::string::npos; from = text.find(begin, from)) {
    from += begin.size();
    const size_t to = text.find(end, from);
    REQUIRE(to != std::string::npos);
    all.push_back(text.substr(from, to - from));
    from = to;
  }
  return all;
}

std::string without(std::string text, const std::string& begin, const std::string& end) {
  for (const std::string& inside : between(text, begin, end)) {
    const std::string whole = begin + inside + end;
    text.replace(text.find(whole), whole.size(), "<");
  }
  return text;
}

// An element of the first series' colour with points.
bool draws_series(const std::string& svg) {
  for (std::string element : between(svg, "var(--series-1)", ">")) {
    std::erase_if(element, [](char c) { return c == ' '; });
    for (const char* points : {"d='", "d=\"", "points='", "points=\""}) {
      if (element.find(points) != std::string::npos) return true;
    }
  }
  return false;
}

// The page without what need not be in a file: styles, plots, published figures, texts of models, the machine, and the
// elements that name a file.
std::string rest_of(std::string html) {
  html = without(html, "<style>", "</style>");
  html = without(html, "<svg", "</svg>");
  html = without(html, "<p class=\"sample\">", "</p>");
  html = without(html, "<div class=\"wide published\">", "</div>");
  for (const char* pattern :
       {R"re(<[a-z0-9]+ class="[^"]*is-published"[^>]*>[^<]*<)re", R"re(<td class="machine">[^<]*<)re",
        R"re(<[a-z0-9]+[^>]* data-from="[^"]*"[^>]*>[^<]*<)re", R"(<[^>]*>)"}) {
    html = std::regex_replace(html, std::regex(pattern), "<");
  }
  return html;
}

void check_shown(const Shown& shown) {
  CAPTURE(shown.from);
  CAPTURE(shown.text);
  const size_t hash = shown.from.find('#');
  REQUIRE(hash != std::string::npos);
  const fs::path file = shown.from.substr(0, hash);
  REQUIRE(fs::exists(file));
  if (hash + 1 == shown.from.size()) {
    // Names the file itself: the text is part of its path.
    CHECK(shown.from.find(shown.text) != std::string::npos);
    return;
  }
  const Json json = Json::parse(read_file(file));
  Json value = json.at(Json::json_pointer(shown.from.substr(hash + 1)));
  if (value.is_object()) value = value["value"];
  if (value.is_null()) {
    CHECK(shown.text == "-");
  } else if (value.is_number()) {
    const size_t point = shown.text.find('.');
    const double digits = point == std::string::npos ? 0 : static_cast<double>(shown.text.size() - point - 1);
    const bool is_exact = shown.text.find('e') != std::string::npos;
    const double most = is_exact ? 0 : 0.5000001 * std::pow(10.0, -digits);
    CHECK(std::abs(std::stod(shown.text) - value.get<double>()) <= most);
  } else {
    CHECK(shown.text == (value.is_string() ? value.get<std::string>() : value.dump()));
  }
}

ProcessResult report(const std::vector<std::string>& paths, const std::string& output,
                     const ProcessOptions& options = {}) {
  std::vector<std::string> arguments = paths;
  arguments.insert(arguments.end(), {"--output", output});
  return run_process(binary("report"), arguments, options);
}

}  // namespace

TEST_CASE("html: what is shown is escaped, whatever it is") {
  CHECK(html_escaped("<script>&\"'") == "&lt;script&gt;&amp;&quot;&#39;");
  CHECK(html_escaped("a\x01\xff\n") == "a\xEF\xBF\xBD\xEF\xBF\xBD\n");
  const ResultTable table{"t", "<t>", {"<c>"}, {{text_cell("<img src=x>")}}, "<n>"};
  const std::string html = html_table(table, "a\"b#/x");
  CHECK(html.find("<img") == std::string::npos);
  CHECK(html.find("<t>") == std::string::npos);
  CHECK(html.find("<c>") == std::string::npos);
  CHECK(html.find("<n>") == std::string::npos);
  CHECK(html.find("a&quot;b#/x/rows/0/0") != std::string::npos);
}

TEST_CASE("plot: a long curve is thinned to means") {
  Curve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.steps.push_back(i);
    curve.values.push_back(2.0 * i);
  }
  const Curve thin = thinned(curve, 10);
  REQUIRE(thin.steps.size() == 10);
  CHECK(thin.steps[0] == 49.5);
  CHECK(thin.values[9] == 2 * 949.5);
  CHECK(thinned(curve, 1000).values == curve.values);
}

TEST_CASE("plot: what is many times all the rest is cut off") {
  LinePlot plot{"loss", "step", {{"a", {}}, {"b", {}}}};
  for (int step = 0; step < 100; ++step) {
    for (PlotSeries& series : plot.series) {
      series.curve.steps.push_back(step);
      series.curve.values.push_back(1 + 0.05 * step);
    }
  }
  CHECK_FALSE(visible_range(plot).is_cut);
  plot.series[0].curve.values[60] = 20;
  plot.series[1].curve.values[63] = std::nan("");
  CHECK_FALSE(visible_range(plot).is_cut);
  plot.series[0].curve.values[61] = 1e9;
  plot.series[0].curve.values[62] = -1e9;
  const VisibleRange range = visible_range(plot);
  CHECK(range.is_cut);
  CHECK(range.low == 1);
  CHECK(range.high == 20);
  CHECK_FALSE(visible_range({"zero", "step", {{"a", {{0, 1}, {0, 0}}}}}).is_cut);
  CHECK_FALSE(visible_range({"none", "step", {}}).is_cut);

  // A gate that is soon 0 is seen whole, and one point beside a constant leaves a range to draw in.
  Curve gate, constant;
  for (int step = 0; step < 100; ++step) {
    gate.steps.push_back(step);
    gate.values.push_back(std::max(0.0, 1 - step / 8.0));
    constant.steps.push_back(step);
    constant.values.push_back(step == 50 ? 100 : 1);
  }
  CHECK_FALSE(visible_range({"gate", "step", {{"a", gate}}}).is_cut);
  const VisibleRange around = visible_range({"constant", "step", {{"a", constant}}});
  CHECK(around.is_cut);
  CHECK(around.low < 1);
  CHECK(around.high > 1);
}

TEST_CASE("report: every number on the page stands in the file it names") {
  if (!has_gnuplot()) SKIP_TEST("no gnuplot");
  const PreparedStories stories;
  const auto experiment = [&](const std::string& program, std::vector<std::string> more) {
    std::vector<std::string> arguments = tiny_experiment(stories, program, 40);
    arguments.insert(arguments.end(), more.begin(), more.end());
    REQUIRE(run_process(binary(program), arguments).exit_code == 0);
  };
  experiment("tinystories-table", {"--seeds", "2", "--variants", "all-anchor"});
  experiment("logit-chasing", {"--anchors", "0.1", "--lrs", "0.01"});
  REQUIRE(run_process(binary("pretrain"),
                      {"--data", stories.data(), "--width", "16", "--layers", "1", "--context", "16", "--batch-tokens",
                       "64", "--steps", "20", "--variant", "internal", "--output", stories.path("<b>single & alone")})
              .exit_code == 0);
  const std::string bench = stories.folder()
                                .write("decode.json", R"({
      "normed":{"tokens_per_s":{"median":100.4,"min":90,"max":120},"bytes_per_token":1},
      "folded":{"tokens_per_s":{"median":118.2,"min":110,"max":121},"bytes_per_token":1},
      "ratios":{"scaled":null,"folded":1.177}})")
                                .string();
  const std::string list = stories.folder()
                               .write("last-token.json", R"([{"batch":4,"context":128,
      "normed":{"tokens_per_s":{"median":7,"min":6,"max":8}},
      "folded":{"tokens_per_s":{"median":9,"min":8,"max":10}},"ratios":{"folded":1.286}}])")
                               .string();
  const std::string page = stories.path("report.html");
  const ProcessResult result = report({stories.path("tinystories-table"), stories.path("logit-chasing"), bench, list,
                                       stories.path("<b>single & alone")},
                                      page);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(report({bench}, page).exit_code == 0);  // its own page is replaced
  const std::vector<std::string> with_pictures{
      stories.path("tinystories-table"), stories.path("logit-chasing"),      bench, list,
      stories.path("<b>single & alone"), "--pictures=" + stories.path("svg")};
  REQUIRE(report(with_pictures, page).exit_code == 0);
  REQUIRE(report(with_pictures, page).exit_code == 0);

  const std::string html = read_file(page);
  const std::vector<Shown> shown = shown_in(html);
  CHECK(shown.size() > 150);
  for (const Shown& each : shown) check_shown(each);
  const std::string rest = rest_of(html);
  std::smatch number;
  const bool has_number = std::regex_search(rest, number, std::regex(R"([^<\n]*[0-9][^<\n]*)"));
  CHECK_MESSAGE(!has_number, "a number without a source: ", has_number ? number[0].str() : "");

  // Self-contained and escaped.
  CHECK(html.find("<b>single") == std::string::npos);
  CHECK(std::regex_search(html, std::regex(R"(<script|<link|<img|src=|url\(|@import)")) == false);
  CHECK(html.find("prefers-color-scheme:dark") != std::string::npos);
  CHECK(html.find("@media print") != std::string::npos);
  CHECK(html.find("name=\"viewport\"") != std::string::npos);

  // Every plot has a line or a bar of a series, and its colours are the page's.
  const std::vector<std::string> figures = between(html, "<figure data-plot=", "</figure>");
  for (const std::string& svg : figures) {
    CHECK(draws_series(svg));
    CHECK(svg.find("rgb(") == std::string::npos);
    CHECK(svg.find("black") == std::string::npos);
  }
  // The single run has one evaluation alone, which makes no curve.
  CHECK(figures.size() == 4 + 7 + 1 + 6);

  // The same plots by themselves, which bring their colours and their legend.
  size_t pictures = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(stories.folder() / "svg")) {
    ++pictures;
    const std::string svg = read_file(entry.path());
    CHECK(draws_series(svg));
    CHECK(svg.rfind("<svg", 0) == 0);
    CHECK(svg.find("<title>taper: ") != std::string::npos);
    CHECK(svg.find("prefers-color-scheme:dark") != std::string::npos);
  }
  CHECK(pictures == figures.size());
  const std::string growth = read_file(stories.folder() / "svg/logit-chasing-scale.svg");
  for (const char* label : {">1M-lr0.01-baseline<", ">1M-lr0.01-all<", ">1M-lr0.01-all-anchor0.1<"}) {
    CHECK(growth.find(label) != std::string::npos);
  }
  stories.folder().write("svg/logit-chasing-scale.svg", "mine");
  const ProcessResult refused = report(with_pictures, page);
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("logit-chasing-scale.svg is there and no report's") != std::string::npos);
  CHECK(read_file(stories.folder() / "svg/logit-chasing-scale.svg") == "mine");

  // The Markdown and the CSV say the same.
  const std::string markdown = read_file(stories.folder() / "report.md"),
                    csv = read_file(stories.folder() / "report.csv");
  const Json table = Json::parse(read_file(stories.folder() / "tinystories-table/table.json"))["tables"][0];
  CHECK(markdown.find(fmt::format("{:.4f}", table["rows"][0][3]["value"].get<double>())) != std::string::npos);
  CHECK(csv.find(table["rows"][0][3]["value"].dump()) != std::string::npos);
}

TEST_CASE("report: runs of one name in different folders are both there, and a slash behind a folder is no name") {
  if (!has_gnuplot()) SKIP_TEST("no gnuplot");
  const PreparedStories stories;
  for (const char* run : {"one/internal", "two/internal"}) {
    std::string lines;
    for (int step = 0; step < 3; ++step) lines += fmt::format("{{\"step\":{0},\"loss\":{0},\"ce\":{0}}}\n", step);
    stories.folder().write(std::string(run) + "/metrics.jsonl", lines);
  }
  const ProcessResult result =
      report({stories.path("one/internal/"), stories.path("two/internal")}, stories.path("report.html"));
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string html = read_file(stories.folder() / "report.html");
  for (const char* label : {">one/internal</span>", ">two/internal</span>", ">one/internal</td>"}) {
    CAPTURE(label);
    CHECK(html.find(label) != std::string::npos);
  }
}

TEST_CASE("report: what it cannot use is named, and without gnuplot it says so") {
  const PreparedStories stories;
  const ProcessResult none = report({stories.path("nothing")}, stories.path("report.html"));
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("is no folder of a run or an experiment") != std::string::npos);
  const std::string mine = stories.folder().write("mine.md", "mine").string();
  for (const char* output : {"mine.html", "mine.md", "mine", "mine.csv"}) {
    const ProcessResult refused = report({stories.path("nothing")}, stories.path(output));
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("--output: ") != std::string::npos);
    CHECK(read_file(mine) == "mine");
  }
  const ProcessResult no_folder = report({stories.path("nothing"), "--pictures=" + mine}, stories.path("report.html"));
  CHECK(no_folder.exit_code == 2);
  CHECK(no_folder.err.find("--pictures: " + mine + " is a file; want a folder") != std::string::npos);
  const ProcessResult other = report({stories.folder().write("x.json", "[]").string()}, stories.path("report.html"));
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("x.json: is no result of decode-bench") != std::string::npos);

  const ProcessResult twice = report({stories.path("x.json"), stories.path("x.json")}, stories.path("report.html"));
  CHECK(twice.exit_code == 2);
  stories.folder().write("run/metrics.jsonl",
                         "{\"step\":0,\"loss\":2,\"ce\":2}\n[]\n{\"step\":\"a\"}\n{\"step\":1,\"loss\":1,\"ce\":1}\n");
  ProcessOptions without;
  without.environment = {{"PATH", stories.path("empty")}};
  const ProcessResult result = report({stories.path("run")}, stories.path("report.html"), without);
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("metrics.jsonl:2: no line of metrics; left out, with 1 more") != std::string::npos);
  CHECK(result.err.find("gnuplot: cannot be started") != std::string::npos);
  CHECK_FALSE(fs::exists(stories.folder() / "report.html"));
}
