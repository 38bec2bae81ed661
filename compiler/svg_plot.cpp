#include "compiler/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnc {

namespace {

constexpr double kLeft = 60, kRight = 15, kTop = 12, kBottom = 46;
constexpr double kMostRatio = 4;  // what is worse lies on the upper edge
constexpr double kTicks[] = {0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4};

class Frame {
public:
    explicit Frame(const RatioPlot& plot) : plot_(plot) {
        for (const PlotPoint& point : plot.points) {
            x_last_ = std::max(x_last_, point.x);
            include(point.y);
        }
        for (const auto& [x, y] : plot.steps) {
            x_last_ = std::max(x_last_, x);
            include(y);
        }
        if (!plot.places.empty()) x_last_ = static_cast<double>(plot.places.size() - 1);
        low_ *= 0.95, high_ *= 1.05;
    }
    double x(double value) const {
        const double width = plot_.width - kLeft - kRight;
        return kLeft + width * (value + 0.5) / (x_last_ + 1);
    }
    double y(double ratio) const {
        const double part = std::log(std::clamp(ratio, low_, high_) / low_) / std::log(high_ / low_);
        return plot_.height - kBottom - part * (plot_.height - kBottom - kTop);
    }
    double low() const { return low_; }
    double high() const { return high_; }
    double x_last() const { return x_last_; }

private:
    void include(double ratio) {
        if (!std::isfinite(ratio) || ratio <= 0) return;
        low_ = std::min(low_, ratio), high_ = std::max(high_, std::min(ratio, kMostRatio));
    }
    const RatioPlot& plot_;
    double x_last_ = 0, low_ = 0.97, high_ = 1.03;
};

std::string axes(const RatioPlot& plot, const Frame& frame) {
    std::string svg;
    const double right = plot.width - kRight, bottom = plot.height - kBottom;
    for (const double tick : kTicks) {
        if (tick < frame.low() || tick > frame.high()) continue;
        const double y = frame.y(tick);
        svg += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                           tick == 1 ? "one" : "grid", kLeft, y, right, y);
        svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>",
                           kLeft - 6, y + 4, tick);
    }
    const size_t places = plot.places.empty() ? static_cast<size_t>(frame.x_last()) + 1 : plot.places.size();
    const size_t step = std::max<size_t>(1, places / (plot.places.empty() ? 12 : 24));
    for (size_t i = 0; i < places; i += step) {
        const std::string name = plot.places.empty() ? fmt::format("{}", i + 1) : plot.places[i];
        svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                           frame.x(static_cast<double>(i)), bottom + 16, html_escaped(name));
    }
    svg += fmt::format("<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                       (kLeft + right) / 2, bottom + 36, html_escaped(plot.x_label));
    svg += fmt::format(
        "<text class=\"label\" transform=\"translate(14 {:.1f}) rotate(-90)\" "
        "text-anchor=\"middle\">{}</text>",
        (kTop + bottom) / 2, html_escaped(plot.y_label));
    return svg;
}

std::string mark(const PlotPoint& point, const Frame& frame) {
    const double x = frame.x(point.x), y = frame.y(point.y);
    std::string svg =
        fmt::format("<g class=\"mark {}\"><title>{}</title>", point.kind, html_escaped(point.title));
    if (point.low > 0) {
        svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>", x,
                           frame.y(point.low), frame.y(point.high));
    }
    return svg + fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"/></g>", x, y);
}

std::string step_line(const RatioPlot& plot, const Frame& frame) {
    if (plot.steps.empty()) return "";
    std::string path;
    for (const auto& [x, y] : plot.steps) {
        if (!path.empty()) path += fmt::format("H{:.1f}", frame.x(x));
        path += fmt::format("{}{:.1f}", path.empty() ? fmt::format("M{:.1f} ", frame.x(x)) : "V", frame.y(y));
    }
    return fmt::format("<path class=\"best\" d=\"{}\"/>", path);
}

}  // namespace

std::string to_svg(const RatioPlot& plot) {
    const Frame frame(plot);
    std::string svg = fmt::format(
        "<svg id=\"{}\" class=\"plot\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\">",
        plot.id, plot.width, plot.height, plot.width, plot.height);
    svg += axes(plot, frame) + step_line(plot, frame);
    for (const PlotPoint& point : plot.points) svg += mark(point, frame);
    return svg + "</svg>";
}

std::string html_escaped(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

}  // namespace attnc
