#include <cmath>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "tools/common/html.h"
#include "tools/common/plot.h"
#include "tools/common/published.h"
#include "tools/common/report_page.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr const char* kPlans[] = {"normed", "scaled", "folded"};

// A file's table, in the forms of a report; the page's cells say where each number stands.
struct BenchmarkTable {
  std::string html_rows;
  ResultTable table;
  BarPlot plot{"tokens/s; the lines reach from least to greatest", {}};

  explicit BenchmarkTable(const fs::path& file) : file_(file.string()) { table.title = file.stem().string(); }

  void begin_row(const std::string& plan) {
    html_rows += fmt::format("<tr><td>{}</td>", plan);
    table.rows.push_back({text_cell(plan)});
  }
  double add(const Json& json, const std::string& pointer, int digits) {
    const Json::json_pointer place(pointer);
    const Json value = json.contains(place) ? json.at(place) : Json();
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    const Cell cell = number_cell(number, digits, file_ + ": " + pointer);
    html_rows += cell.value.is_null() ? "<td class=\"number\">-</td>"
                                      : html_from("td class=\"number\"", to_text(cell), file_ + "#" + pointer);
    table.rows.back().push_back(cell);
    return number;
  }

 private:
  std::string file_;
};

BenchmarkTable read_benchmark(const fs::path& file) {
  const Json json = try_parse_json<Json>(read_file(file, kMaxJsonBytes));
  const bool is_list = json.is_array();
  BenchmarkTable result(file);
  result.table.columns = {"plan", "median", "least", "greatest", "ratio to normed"};
  if (is_list) result.table.columns.insert(result.table.columns.end(), {"batch", "context"});
  for (size_t i = 0; i < (is_list ? json.size() : 1); ++i) {
    const std::string entry = is_list ? fmt::format("/{}", i) : "";
    for (const std::string plan : kPlans) {
      if (!json.contains(Json::json_pointer(entry + "/" + plan))) continue;
      result.begin_row(plan);
      const std::string rate = entry + "/" + plan + "/tokens_per_s";
      const double median = result.add(json, rate + "/median", 0);
      const double least = result.add(json, rate + "/min", 0), greatest = result.add(json, rate + "/max", 0);
      result.add(json, entry + "/ratios/" + plan, 3);
      if (is_list) {
        for (const char* key : {"/batch", "/context"}) result.add(json, entry + key, 0);
      } else if (std::isfinite(median + least + greatest)) {
        result.plot.bars.push_back({plan, median, least, greatest});
      }
      result.html_rows += "</tr>\n";
    }
  }
  return result;
}

}  // namespace

void ReportPage::add_benchmarks(const std::vector<fs::path>& files) {
  if (files.empty()) return;
  begin_section("throughput", "Decoding, tokens per second", "");
  for (const fs::path& file : files) {
    const BenchmarkTable benchmark = read_benchmark(file);
    body_ += html_from("h3", benchmark.table.title, file.string() + "#") + "\n";
    if (!benchmark.plot.bars.empty()) {
      body_ += fmt::format("<div class=\"plots\"><figure data-plot=\"{}\">{}</figure></div>\n",
                           html_escaped(file.string() + "#tokens_per_s"), draw(benchmark.plot));
      BarPlot alone = benchmark.plot;
      alone.title = benchmark.table.title + ": " + alone.title;
      keep_picture(alone, benchmark.table.title);
    }
    body_ += "<div class=\"wide\"><table><thead><tr>";
    for (size_t i = 0; i < benchmark.table.columns.size(); ++i) {
      body_ += fmt::format("<th{}>{}</th>", i > 0 ? " class=\"number\"" : "", benchmark.table.columns[i]);
    }
    body_ += "</tr></thead><tbody>" + benchmark.html_rows + "</tbody></table></div>\n";
    markdown_ += "\n" + to_markdown(benchmark.table);
    add_to_csv(benchmark.table, file.string());
  }
  for (const char* program : {"decode-bench", "last-token-bench"}) {
    for (const ResultTable& published : published_figures(program)) add_published(published);
  }
}

}  // namespace taper
