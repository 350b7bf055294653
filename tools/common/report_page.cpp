#include "tools/common/report_page.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/core/cpu_features.h"
#include "engine/core/error.h"
#include "engine/core/parallel.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "tools/common/experiment_record.h"
#include "tools/common/html.h"
#include "tools/common/machine.h"
#include "tools/common/plan.h"
#include "tools/common/published.h"
#include "tools/common/run_plan.h"
#include "tools/common/run_results.h"
#include "tools/common/run_settings.h"
#include "tools/common/run_tool.h"
#include "tools/common/text_sample.h"
#include "train/metrics.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr size_t kMostSamples = 6;

struct PlottedKey {
  const char* key;
  const char* title;
  bool is_scale_dynamics;  // only where that is the question
};

constexpr PlottedKey kPlottedKeys[] = {
    {"valid_loss", "validation loss (nats)", false},
    {"ce", "training cross-entropy (nats)", false},
    {"gate", "gate", false},
    {"scale", "mean pre-logit scale s", false},
    {"logit_rms", "RMS of the logits", true},
    {"radial_ce", "radial gradient of the cross-entropy", true},
    {"grad_norm", "norm of the gradient", true},
};

Json read_json(const fs::path& file) {
  Json json = try_parse_json<Json>(read_file(file, kMaxJsonBytes));
  require(!json.is_discarded(), "{}: is damaged; want JSON", file.string());
  return json;
}

// The run's name without its seed.
std::string kind_of(const fs::path& run) {
  const std::string name = run.filename().string();
  return name.substr(0, name.rfind("-seed"));
}

// Runs of one size share a plot, those of the first seed alone; where an experiment is made at several learning rates,
// so that names say SIZE-lrX-..., those of one rate.
std::vector<std::vector<fs::path>> plot_groups(const std::vector<fs::path>& runs) {
  std::vector<std::pair<std::string, std::vector<fs::path>>> groups;
  std::vector<fs::path> seen;
  for (const fs::path& run : runs) {
    if (!fs::exists(run / kMetricsFile)) continue;
    const fs::path kind = run.parent_path() / kind_of(run);
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
    seen.push_back(kind);
    const Json settings = fs::exists(run / kRunSettingsFile) ? read_json(run / kRunSettingsFile) : Json::object();
    std::string key;
    const bool is_by_peak = run.filename().string().find("-lr") == run.filename().string().find('-');
    for (const char* option : {"size", "model", "lr"}) {
      const bool counts = settings.contains(option) && (is_by_peak || std::string_view(option) != "lr");
      key += counts ? shown(settings[option]) : "";
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(run);
  }
  std::vector<std::vector<fs::path>> result;
  for (auto& [key, members] : groups) {
    // No more lines than colours.
    for (size_t begin = 0; begin < members.size(); begin += kPlotColours) {
      const size_t end = std::min(members.size(), begin + kPlotColours);
      result.emplace_back(members.begin() + static_cast<ptrdiff_t>(begin),
                          members.begin() + static_cast<ptrdiff_t>(end));
    }
  }
  return result;
}

std::string name_of(const fs::path& run) { return run.filename().string(); }

// The runs by that name, with the folder around them where it is another's too.
std::vector<std::string> labels_of(const std::vector<fs::path>& runs, std::string (*name)(const fs::path&)) {
  std::vector<std::string> labels;
  for (const fs::path& run : runs) {
    const auto is_alike = [&](const fs::path& other) { return name(other) == name(run); };
    const bool is_enough = std::count_if(runs.begin(), runs.end(), is_alike) == 1;
    labels.push_back(is_enough ? name(run) : (run.parent_path().filename() / name(run)).string());
  }
  return labels;
}

std::string figure_of(const LinePlot& plot, const std::vector<RunResults>& runs, const char* key) {
  std::string from;
  for (const RunResults& run : runs) from += (run.folder() / kMetricsFile).string() + "#" + key + " ";
  from.pop_back();
  return fmt::format("<figure data-plot=\"{}\" role=\"img\" aria-label=\"{}\">{}</figure>\n", html_escaped(from),
                     html_escaped(plot.title), draw(plot));
}

}  // namespace

void ReportInputs::add(const fs::path& given) {
  fs::path path = given.has_filename() ? given : given.parent_path();  // a shell may end it with a slash
  if (const fs::path last = path.filename(); last == "." || last == "..") path = fs::canonical(path);
  const auto is_same = [&](const fs::path& other) { return fs::exists(path) && fs::equivalent(other, path); };
  for (const std::vector<fs::path>* known : {&experiments, &runs, &benchmarks}) {
    require_usage(std::none_of(known->begin(), known->end(), is_same), "{}: is given twice", given.string());
  }
  if (fs::exists(path / kExperimentFile)) {
    experiments.push_back(path);
  } else if (fs::exists(path / kMetricsFile)) {
    runs.push_back(path);
  } else if (fs::is_regular_file(path)) {
    const Json json = try_parse_json<Json>(read_file(path, kMaxJsonBytes));
    const Json& first = json.is_array() && !json.empty() ? json[0] : json;
    require_usage(first.is_object() && first.contains("ratios"),
                  "{}: is no result of decode-bench --json or last-token-bench --json", path.string());
    benchmarks.push_back(path);
  } else {
    fail_usage("{}: is no folder of a run or an experiment, and no file of a benchmark", path.string());
  }
}

void ReportPage::begin_section(const std::string& name, const std::string& title, const std::string& from) {
  section_ = name;
  for (int number = 2; !sections_.insert(section_).second; ++number) section_ = fmt::format("{}-{}", name, number);
  const std::string attribute = from.empty() ? "" : " data-from=\"" + html_escaped(from) + "\"";
  contents_ +=
      fmt::format("<li><a href=\"#{}\"{}>{}</a></li>\n", html_escaped(section_), attribute, html_escaped(title));
  body_ += fmt::format("<h2 id=\"{}\"{}>{}</h2>\n", html_escaped(section_), attribute, html_escaped(title));
  markdown_ += (markdown_.empty() ? "## " : "\n## ") + title + "\n";
}

void ReportPage::add_table(const ResultTable& table, const std::string& place) {
  body_ += html_table(table, place);
  markdown_ += "\n" + to_markdown(table);
  add_to_csv(table, place.substr(0, place.find('#')));
}

void ReportPage::add_published(const ResultTable& table) {
  body_ += html_published(table);
  markdown_ += "\n" + to_markdown(table);
}

void ReportPage::add_to_csv(const ResultTable& table, const std::string& file) {
  ResultTable list{"", "", {"file", "table", "row", "column", "value"}, {}, ""};
  for (size_t r = 0; r < table.rows.size(); ++r) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      list.rows.push_back({text_cell(file), text_cell(table.title), text_cell(std::to_string(r)),
                           text_cell(table.columns[i]), table.rows[r][i]});
    }
  }
  const std::string lines = to_csv(list);
  csv_ += lines.substr(lines.find('\n') + 1);
}

void ReportPage::add_experiment(const fs::path& folder) {
  if (!fs::exists(folder / kTableFile)) {
    print_message(
        fmt::format("report: {} has no table yet and is left out; its program goes on with it", folder.string()));
    return;
  }
  const std::string file = (folder / kTableFile).string();
  const Json json = read_json(folder / kTableFile);
  const auto text = [&](const char* key) {
    require(json.contains(key) && json[key].is_string(), "{}: is damaged; {} is missing", file, key);
    return json[key].get<std::string>();
  };
  const std::string name = text("experiment"), question = text("question");
  begin_section(folder.filename().string(), name, file + "#/experiment");
  body_ += html_from("p", question, file + "#/question") + "\n";
  markdown_ += "\n" + question + "\n";
  require(json.contains("tables") && json["tables"].is_array(), "{}: is damaged; tables are missing", file);
  for (size_t i = 0; i < json["tables"].size(); ++i) {
    add_table(table_from_json(json["tables"][i], file), fmt::format("{}#/tables/{}", file, i));
    if (i > 0) continue;
    for (const ResultTable& published : published_figures(name)) add_published(published);
  }
  std::vector<fs::path> runs;
  for (const PlannedRun& run : read_plan(folder / kPlanFile)) runs.push_back(folder / run.name);
  add_plots(runs, name == "logit-chasing");
  add_samples(runs);
  add_settings(folder / kExperimentFile, "/settings");
}

void ReportPage::add_runs(const std::vector<fs::path>& folders) {
  if (folders.empty()) return;
  begin_section("runs", "Single runs", "");
  struct Key {
    const char* key;
    const char* title;
    int digits;
  };
  constexpr Key kKeys[] = {{"valid_loss", "validation loss (nats)", 4},
                           {"bits_per_byte", "bits per byte", 4},
                           {"steps", "steps", 0},
                           {"parameters", "parameters", 0},
                           {"gate", "gate", 2},
                           {"tokens_per_s", "tokens/s in training", 0}};
  std::string rows, head = "<th>run</th>";
  ResultTable table{"runs", "Single runs", {"run"}, {}, ""};
  for (const Key& key : kKeys) {
    head += fmt::format("<th class=\"number\">{}</th>", key.title);
    table.columns.push_back(key.title);
  }
  const std::vector<std::string> labels = labels_of(folders, name_of);
  for (size_t i = 0; i < folders.size(); ++i) {
    const fs::path& folder = folders[i];
    const RunResults run(folder);
    const std::string summary = (folder / kSummaryFile).string();
    rows += "<tr>" + html_from("td", labels[i], (folder / kRunSettingsFile).string() + "#");
    table.rows.push_back({text_cell(labels[i])});
    for (const Key& key : kKeys) {
      const Cell cell = number_cell(run.summary_number(key.key), key.digits, summary + ": " + key.key);
      rows += cell.value.is_null() ? "<td class=\"number\">-</td>"
                                   : html_from("td class=\"number\"", to_text(cell), summary + "#/" + key.key);
      table.rows.back().push_back(cell);
    }
    rows += "</tr>\n";
  }
  body_ += "<div class=\"wide\"><table><thead><tr>" + head + "</tr></thead><tbody>" + rows + "</tbody></table></div>\n";
  markdown_ += "\n" + to_markdown(table);
  add_to_csv(table, "");
  add_plots(folders, true);
  add_samples(folders);
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / kRunSettingsFile)) add_settings(folder / kRunSettingsFile, "");
  }
}

void ReportPage::add_plots(const std::vector<fs::path>& runs, bool has_scale_dynamics) {
  int number = 0;
  for (const std::vector<fs::path>& group : plot_groups(runs)) {
    ++number;
    std::vector<RunResults> results;
    for (const fs::path& run : group) results.emplace_back(run);
    const std::vector<std::string> labels = labels_of(group, kind_of);
    std::string legend, figures;
    for (size_t i = 0; i < group.size(); ++i) {
      legend += fmt::format("<li><i style=\"background:var(--series-{})\"></i>{}</li>", i + 1,
                            html_from("span", labels[i], (group[i] / kRunSettingsFile).string() + "#"));
    }
    for (const PlottedKey& plotted : kPlottedKeys) {
      if (plotted.is_scale_dynamics && !has_scale_dynamics) continue;
      LinePlot plot{plotted.title, "step", {}};
      for (size_t i = 0; i < results.size(); ++i) {
        const Curve curve = results[i].curve(plotted.key);
        if (curve.steps.size() > 1) plot.series.push_back({labels[i], curve, static_cast<int>(i) + 1});
      }
      if (plot.series.empty()) continue;
      figures += figure_of(plot, results, plotted.key);
      keep_picture(plot, number == 1 ? plotted.key : fmt::format("{}-{}", plotted.key, number));
    }
    if (figures.empty()) continue;
    body_ += "<h3>Curves</h3><ul class=\"legend\">" + legend + "</ul>\n<div class=\"plots\">\n" + figures + "</div>\n";
    body_ +=
        "<p class=\"note\">By step; the first seed of each. Long curves are drawn as means over equal parts.</p>\n";
  }
}

void ReportPage::add_samples(const std::vector<fs::path>& runs) {
  std::string samples;
  size_t count = 0;
  for (const std::vector<fs::path>& group : plot_groups(runs)) {
    const std::vector<std::string> labels = labels_of(group, kind_of);
    for (size_t i = 0; i < group.size(); ++i) {
      const fs::path& run = group[i];
      if (count >= kMostSamples) break;
      const std::optional<TextSample> sample = sample_of(run);
      if (!sample) continue;
      ++count;
      samples += fmt::format("<div><h4>{}</h4><p class=\"sample\"><b>{}</b>{}</p></div>\n",
                             html_from("span", labels[i], (run / kRunSettingsFile).string() + "#"),
                             html_escaped(sample->prompt), html_escaped(sample->text));
    }
  }
  if (samples.empty()) return;
  body_ += "<h3>The same beginning, continued by each model</h3>\n<div class=\"samples\">\n" + samples + "</div>\n";
  body_ += "<p class=\"note\">Drawn with one seed for all, from the most probable tokens.</p>\n";
}

void ReportPage::add_settings(const fs::path& file, const std::string& pointer) {
  const Json json = read_json(file);
  require(json.is_object(), "{}: is damaged; want a JSON object", file.string());
  const Json settings = json.value(Json::json_pointer(pointer), Json::object());
  std::string rows;
  for (const auto& [key, value] : settings.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : shown(value);
    rows += "<tr>" + fmt::format("<td>{}</td>", html_escaped(key)) +
            html_from("td", text, file.string() + "#" + pointer + "/" + key) + "</tr>\n";
  }
  body_ +=
      "<details><summary>Settings: " + html_from("span", file.parent_path().filename().string(), file.string() + "#") +
      "</summary><div class=\"wide\"><table><tbody>\n" + rows + "</tbody></table></div></details>\n";
}

void ReportPage::add_machine() {
  begin_section("machine", "The machine that made this page", "");
  std::string rows;
  markdown_ += "\n";
  for (const auto& [name, value] : describe_machine()) {
    rows += fmt::format("<tr><td>{}</td><td class=\"machine\">{}</td></tr>\n", html_escaped(name), html_escaped(value));
    markdown_ += "- " + name + ": " + value + "\n";
  }
  body_ += "<div class=\"wide\"><table><tbody>\n" + rows + "</tbody></table></div>\n";
}

std::string ReportPage::html() const {
  return html_page("taper: experiments",
                   "<header><h1>Transformers without norms</h1>\n"
                   "<p>Norms gated away in training, folded into their neighbours, and decoded without. Every number "
                   "says where it comes from: data-from in the source of this page, and a tooltip.</p>\n<nav><ul>\n" +
                       contents_ + "</ul></nav></header>\n<main>\n" + body_ + "</main>\n");
}

}  // namespace taper
