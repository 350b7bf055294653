// Plots as SVG, drawn by gnuplot, to stand inside a page: their colours are the page's CSS variables --series-1 to
// --series-8 and --grid and its text colour, so that they follow it into the dark. Without a legend: the page has it.
#pragma once

#include <string>
#include <vector>

#include "tools/common/run_results.h"

namespace taper {

inline constexpr int kPlotColours = 8;

struct PlotSeries {
  std::string label;
  Curve curve;
  int colour = 1;  // 1 to kPlotColours
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::vector<PlotSeries> series;  // drawn thinned, as means over equal parts of the steps, where there are many
};

struct Bar {
  std::string label;
  double value = 0, low = 0, high = 0;
};

struct BarPlot {
  std::string title;
  std::vector<Bar> bars;
};

// "<svg ...>...</svg>". Error where gnuplot is absent, naming the cure, or fails.
std::string draw(const LinePlot& plot);
std::string draw(const BarPlot& plot);

// The curve as at most `most` means.
Curve thinned(const Curve& curve, size_t most);

}  // namespace taper
