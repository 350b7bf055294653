#include "tools/common/plot.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>
#include <thread>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/read_file.h"
#include "tools/common/child_process.h"
#include "tools/common/html.h"

namespace taper {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPoints = 240;
constexpr uint64_t kMaxSvgBytes = 16 << 20;
constexpr int kExitNotStarted = 127;

// Colours that stand for the page's own: gnuplot writes them as they are, recoloured() replaces them.
constexpr const char* kText = "#010101";
constexpr const char* kGrid = "#020202";
std::string series_colour(int colour) { return fmt::format("#0303{:02x}", colour); }

class TemporaryFolder {
 public:
  // Of a name that nobody can foresee: the folder above is everybody's.
  TemporaryFolder() {
    std::error_code error;
    std::string name = fs::temp_directory_path(error) / "taper-plot-XXXXXX";
    require(!error, "TMPDIR: is no folder for the plots' files; {}", error.message());
    require(::mkdtemp(name.data()) != nullptr, "{}: cannot be made: {}", name, std::strerror(errno));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// As a text of gnuplot's, without markup.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : valid_utf8(text)) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) result += c;
  }
  return result + "\" noenhanced";
}

// `below`: entries of a legend below the plot, a row each; 0: none.
std::string preamble(const std::string& title, size_t below) {
  constexpr size_t kWidth = 480, kHeight = 300, kRow = 20;
  std::string script =
      fmt::format("set terminal svg size {},{} dynamic font \"sans-serif,15\"\n", kWidth, kHeight + kRow * below);
  script += fmt::format("set title {} tc rgb \"{}\"\n", quoted(title), kText);
  script += fmt::format("set border 3 lc rgb \"{}\"\nset tics nomirror tc rgb \"{}\"\n", kText, kText);
  script += fmt::format("set grid lc rgb \"{}\" lt 1\n", kGrid);
  script += below == 0 ? "unset key\n" : fmt::format("set key below maxcols 1 tc rgb \"{}\"\n", kText);
  return script;
}

std::string colour_of(const std::smatch& match) {
  const int red = std::stoi(match[1]), green = std::stoi(match[2]), blue = std::stoi(match[3]);
  if (red == 1 && green == 1 && blue == 1) return "currentColor";
  if (red == 2 && green == 2 && blue == 2) return "var(--grid)";
  if (red == 3 && green == 3) return fmt::format("var(--series-{})", blue);
  return match[0];
}

// Takes what a page needs out of gnuplot's file: no prologue, no shared definitions whose ids would meet those of the
// next plot, no colours of its own.
std::string recoloured(const std::string& svg) {
  static const std::regex rgb(R"(rgb\( *(\d+), *(\d+), *(\d+)\))");
  static const std::regex own(R"re( color="[a-z]+"| id="[^"]*"|<title>[^<]*</title>|<desc>[^<]*</desc>)re");
  const size_t begin = svg.find("<svg"), defs = svg.find("<defs>"), defs_end = svg.find("</defs>");
  require(begin != std::string::npos && defs != std::string::npos && defs_end != std::string::npos,
          "gnuplot: its SVG is not as expected");
  const std::string kept = svg.substr(begin, defs - begin) + svg.substr(defs_end + 7);
  std::string result;
  auto last = kept.cbegin();
  for (std::sregex_iterator it(kept.begin(), kept.end(), rgb), end; it != end; ++it) {
    result.append(last, (*it)[0].first);
    result += colour_of(*it);
    last = (*it)[0].second;
  }
  result.append(last, kept.cend());
  return std::regex_replace(std::regex_replace(result, own, ""), std::regex("\"black\""), "\"currentColor\"");
}

std::string run_gnuplot(const std::string& script) {
  const TemporaryFolder folder;
  const fs::path log = folder / "log.txt", svg = folder / "plot.svg";
  write_file(folder / "script.gp",
             fmt::format("set output {}\n", quoted(svg.string()).substr(0, svg.string().size() + 2)) + script +
                 "unset output\n");
  ChildProcess gnuplot("gnuplot", {(folder / "script.gp").string()}, log, log);
  std::optional<int> code;
  while (!(code = gnuplot.poll())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  require(*code != kExitNotStarted,
          "gnuplot: cannot be started, and the plots are drawn by it; third_party/install.sh report installs it");
  require(*code == 0 && fs::exists(svg), "gnuplot: failed with exit code {}: {}", *code,
          read_file(log, 1 << 20).substr(0, 500));
  return recoloured(read_file(svg, kMaxSvgBytes));
}

}  // namespace

Curve thinned(const Curve& curve, size_t most) {
  if (curve.steps.size() <= most) return curve;
  Curve result;
  const size_t count = curve.steps.size();
  for (size_t i = 0; i < most; ++i) {
    const size_t begin = count * i / most, end = count * (i + 1) / most;
    double step = 0, value = 0;
    for (size_t k = begin; k < end; ++k) {
      step += curve.steps[k];
      value += curve.values[k];
    }
    result.steps.push_back(step / static_cast<double>(end - begin));
    result.values.push_back(value / static_cast<double>(end - begin));
  }
  return result;
}

VisibleRange visible_range(const LinePlot& plot) {
  // A tenth of the values that are not zero may be of any size; those within this many times the rest are seen.
  constexpr double kMostTimes = 8;
  std::vector<double> sizes;
  for (const PlotSeries& series : plot.series) {
    for (const double value : series.curve.values) {
      if (std::isfinite(value) && value != 0) sizes.push_back(std::abs(value));
    }
  }
  if (sizes.empty()) return {};
  const auto usual = sizes.begin() + static_cast<ptrdiff_t>(sizes.size() * 9 / 10);
  std::nth_element(sizes.begin(), usual, sizes.end());
  const double most = kMostTimes * *usual;
  VisibleRange range{most, -most, false};
  for (const PlotSeries& series : plot.series) {
    for (const double value : series.curve.values) {
      if (std::isnan(value)) continue;
      if (std::abs(value) > most) {
        range.is_cut = true;
        continue;
      }
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  if (range.low == range.high) {
    const double margin = std::max(1.0, std::abs(range.low));
    range.low -= margin, range.high += margin;
  }
  return range;
}

namespace {

std::string script_of(const LinePlot& plot, bool has_legend) {
  const VisibleRange range = visible_range(plot);
  const std::string title = plot.title + (range.is_cut ? ", cut" : "");
  std::string script = preamble(title, has_legend ? plot.series.size() : 0), command = "plot ";
  script += fmt::format(
      "set xlabel {} tc rgb \"{}\"\nset xrange [0:*]\nset autoscale yfix\nset offsets 0, 0, graph 0.04, graph 0.04\n",
      quoted(plot.x_label), kText);
  if (range.is_cut) script += fmt::format("set yrange [{}:{}]\n", range.low, range.high);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& series = plot.series[i];
    const Curve curve = thinned(series.curve, kMostPoints);
    script += fmt::format("$series{} << EOD\n", i);
    for (size_t k = 0; k < curve.steps.size(); ++k) script += fmt::format("{} {}\n", curve.steps[k], curve.values[k]);
    script += "EOD\n";
    command += fmt::format("{}$series{} using 1:2 with lines lw 1.8 lc rgb \"{}\" title {}", i > 0 ? ", " : "", i,
                           series_colour(series.colour), quoted(series.label));
  }
  return script + command + "\n";
}

std::string script_of(const BarPlot& plot) {
  std::string script = preamble(plot.title, 0);
  script += "set style fill solid 0.75\nset boxwidth 0.6\nset yrange [0:*]\nset xrange [-0.6:" +
            std::to_string(plot.bars.size()) + "-0.4]\nset xtics (";
  std::string data = "$bars << EOD\n", command = "plot ";
  for (size_t i = 0; i < plot.bars.size(); ++i) {
    const Bar& bar = plot.bars[i];
    script += fmt::format("{}{} {}", i > 0 ? ", " : "", quoted(bar.label).substr(0, bar.label.size() + 2), i);
    data += fmt::format("{} {} {} {}\n", i, bar.value, bar.low, bar.high);
    const int colour = static_cast<int>(i) % kPlotColours + 1;
    command += fmt::format("{}$bars every ::{}::{} using 1:2 with boxes lc rgb \"{}\"", i > 0 ? ", " : "", i, i,
                           series_colour(colour));
  }
  // Vectors without heads: error bars that need no point symbols.
  command += fmt::format(
      ", $bars using 1:3:(0):($4-$3) with vectors nohead lw 2 lc rgb \"{0}\", "
      "$bars using ($1-0.08):3:(0.16):(0) with vectors nohead lw 2 lc rgb \"{0}\", "
      "$bars using ($1-0.08):4:(0.16):(0) with vectors nohead lw 2 lc rgb \"{0}\"",
      kText);
  return script + ")\n" + data + "EOD\n" + command + "\n";
}

// A page's plot with the page's colours and a title.
std::string standing_alone(std::string svg, const std::string& title) {
  return svg.insert(svg.find('>') + 1,
                    fmt::format("<title>{}{}</title><style>{}svg{{background:var(--page);color:var(--text)}}</style>",
                                kPictureTitle, html_escaped(title), html_palette()));
}

}  // namespace

std::string draw(const LinePlot& plot) { return run_gnuplot(script_of(plot, false)); }
std::string draw(const BarPlot& plot) { return run_gnuplot(script_of(plot)); }

std::string draw_alone(const LinePlot& plot) { return standing_alone(run_gnuplot(script_of(plot, true)), plot.title); }
std::string draw_alone(const BarPlot& plot) { return standing_alone(run_gnuplot(script_of(plot)), plot.title); }

}  // namespace taper
