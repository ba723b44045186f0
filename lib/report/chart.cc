#include "report/chart.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/log.h"
#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"

namespace curvq {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high) {
  const double rough = (high - low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
  // The nearest of 1, 2, 5 and 10 by ratio.
  const double factor = rough / power;
  const double step = power * (factor > std::sqrt(50)   ? 10
                               : factor > std::sqrt(10) ? 5
                               : factor > std::sqrt(2)  ? 2
                                                        : 1);
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    ticks.push_back(i * step);
  return ticks;
}

namespace report {
namespace {

std::vector<double> ticks_of(const Scale& scale) {
  if (!scale.logarithmic) return round_ticks(scale.low, scale.high);
  std::vector<double> ticks;
  const int first = static_cast<int>(std::ceil(std::log10(scale.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(scale.high) + 1e-9));
  const int step = std::max(1, (last - first + 6) / 7);  // at most eight
  for (int decade = first; decade <= last; decade += step) ticks.push_back(std::pow(10, decade));
  return ticks;
}

std::string tick_text(double value) {
  return std::abs(value) < 1e-300 ? "0" : format("%.4g", value);
}

}  // namespace

std::string coordinate(double value) { return format("%.2f", value); }

Svg::Svg(const std::string& kind, double width, double height, const std::string& title) {
  body_ = "<svg class=\"" + kind + "\" xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
          coordinate(width) + "\" height=\"" + coordinate(height) + "\" viewBox=\"0 0 " +
          coordinate(width) + " " + coordinate(height) + "\" role=\"img\" aria-label=\"" +
          escaped(title) + "\">\n<text class=\"title\" x=\"0\" y=\"16\">" + escaped(title) +
          "</text>\n";
}

void Svg::text(double x, double y, const std::string& anchor, const std::string& text) {
  body_ += "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor +
           "\">" + escaped(text) + "</text>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& css) {
  body_ += "<line class=\"" + css + "\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) +
           "\" x2=\"" + coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>\n";
}

void Svg::rect(double x, double y, double width, double height, const std::string& css,
               const std::string& tooltip, const std::string& more) {
  body_ += "<rect class=\"" + css + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) +
           "\" width=\"" + coordinate(width) + "\" height=\"" + coordinate(height) + "\"" + more +
           "><title>" + escaped(tooltip) + "</title></rect>\n";
}

void Svg::path(const std::string& d, const std::string& css, const std::string& tooltip,
               const std::string& more) {
  body_ += "<path class=\"" + css + "\" d=\"" + d + "\"" + more + "><title>" + escaped(tooltip) +
           "</title></path>\n";
}

double Scale::at(double value) const {
  const auto place = [&](double v) { return logarithmic ? std::log10(std::max(v, low)) : v; };
  const double share = (place(value) - place(low)) / (place(high) - place(low));
  return from + share * (to - from);
}

void draw_x_axis(Svg& svg, const Scale& x, double top, double bottom, const std::string& title) {
  for (const double tick : ticks_of(x)) {
    svg.line(x.at(tick), top, x.at(tick), bottom, "grid");
    svg.text(x.at(tick), bottom + 16, "middle", tick_text(tick));
  }
  svg.line(x.from, bottom, x.to, bottom, "axis");
  svg.text((x.from + x.to) / 2, bottom + 34, "middle", title);
}

void draw_y_axis(Svg& svg, const Scale& y, double left, double right, const std::string& title) {
  for (const double tick : ticks_of(y)) {
    svg.line(left, y.at(tick), right, y.at(tick), "grid");
    svg.text(left - 6, y.at(tick) + 4, "end", tick_text(tick));
  }
  svg.line(left, y.from, left, y.to, "axis");
  svg.text(left - 60, std::min(y.from, y.to) - 10, "start", title);
}

std::string empty_chart(const std::string& kind, const std::string& title) {
  Svg svg(kind, 700, 50, title);
  svg.text(0, 40, "start", "nothing to draw: no value is finite");
  return svg.str();
}

}  // namespace report
}  // namespace curvq
