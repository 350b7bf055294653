// Plots as SVG, drawn by gnuplot. Inside a page their colours are the page's CSS variables --series-1 to --series-8 and
// --grid and its text colour, so that they follow it into the dark, and the page has the legend. Alone they bring both.
#pragma once

#include <string>
#include <vector>

#include "tools/common/run_results.h"

namespace taper {

inline constexpr int kPlotColours = 8;
inline constexpr const char* kPictureTitle = "taper: ";  // how the title of a plot that stands alone begins

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

// The same as a file of its own, for a README: with a legend, a title, and the page's colours (tools/common/html.h).
std::string draw_alone(const LinePlot& plot);
std::string draw_alone(const BarPlot& plot);

// The values that a plot shows: but for single ones that are many times all others, of a run that diverged, say. They
// are cut off, and its title says so.
struct VisibleRange {
  double low = 0, high = 0;
  bool is_cut = false;
};
VisibleRange visible_range(const LinePlot& plot);

// The curve as at most `most` means.
Curve thinned(const Curve& curve, size_t most);

}  // namespace taper
