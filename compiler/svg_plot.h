// Plots of ratios as SVG, for pages that need nothing else: a logarithmic axis upwards, places side by side along the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attnc {

struct PlotPoint {
    double x = 0, y = 1;
    double low = 0, high = 0;  // of a line through the point; low 0: none, and high at most what is drawn
    std::string kind;          // class of the mark, for the page's style
    std::string title;         // shown when pointed at
};

struct RatioPlot {
    std::string id;
    std::string x_label, y_label;
    int width = 900, height = 300;
    std::vector<PlotPoint> points;
    std::vector<std::pair<double, double>> steps;  // a line that holds its height until the next place
    std::vector<std::string> places;               // names of x = 0, 1, ...; empty: numbers
};

std::string to_svg(const RatioPlot& plot);

// Text for HTML and SVG.
std::string html_escaped(const std::string& text);

}  // namespace attnc
