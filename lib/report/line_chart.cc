#include <algorithm>
#include <array>
#include <cmath>

#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "report/chart.h"

namespace curvq {

using report::coordinate;
using report::Scale;
using report::Svg;

namespace {

constexpr std::array<const char*, 6> kColors = {"#4c78a8", "#f58518", "#54a24b",
                                                "#e45756", "#72b7b2", "#b279a2"};

struct Range {
  double low = HUGE_VAL, high = -HUGE_VAL;

  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  void widen() {
    if (low < high) return;
    const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= margin;
    high += margin;
  }
};

bool drawn(const Line& line, size_t i) {
  return std::isfinite(line.x[i]) && std::isfinite(line.y[i]);
}

double half_width(const Line& line, size_t i) {
  return line.half_width.empty() || !std::isfinite(line.half_width[i]) ? 0 : line.half_width[i];
}

std::string through(const Line& line, const Scale& x, const Scale& y) {
  std::string d;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!drawn(line, i)) continue;
    d += (d.empty() ? "M" : "L") + coordinate(x.at(line.x[i])) + " " + coordinate(y.at(line.y[i]));
  }
  return d;
}

// Along the upper edge, back along the lower one.
std::string around(const Line& line, const Scale& x, const Scale& y) {
  std::string upper, lower;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!drawn(line, i)) continue;
    const auto point = [&](double value) {
      return coordinate(x.at(line.x[i])) + " " + coordinate(y.at(std::clamp(value, y.low, y.high)));
    };
    upper += (upper.empty() ? "M" : "L") + point(line.y[i] + half_width(line, i));
    lower = "L" + point(line.y[i] - half_width(line, i)) + lower;
  }
  return upper + lower + "Z";
}

}  // namespace

std::string LineChart::svg() const {
  constexpr double kLeft = 90, kRight = 880, kTop = 52, kBottom = 330;
  Range across, up;
  double smallest = HUGE_VAL;  // positive
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.x.size(); ++i) {
      if (!drawn(line, i)) continue;
      across.include(line.x[i]);
      up.include(line.y[i] - half_width(line, i));
      up.include(line.y[i] + half_width(line, i));
      if (line.y[i] > 0) smallest = std::min(smallest, line.y[i]);
    }
  }
  if (across.empty()) return report::empty_chart("lines", title);
  const bool logarithmic = log_y && smallest < HUGE_VAL;
  if (logarithmic) {  // at most twelve decades
    up.low = std::pow(10, std::floor(std::log10(std::max(smallest, 1e-12 * up.high))));
    up.high = std::pow(10, std::ceil(std::log10(up.high)));
  }
  across.widen();
  up.widen();
  const Scale x{across.low, across.high, kLeft, kRight};
  const Scale y{up.low, up.high, kBottom, kTop, logarithmic};
  Svg svg("lines", 900, kBottom + 44, title);
  draw_x_axis(svg, x, kTop, kBottom, x_title);
  draw_y_axis(svg, y, kLeft, kRight, y_title);
  double key = kRight;
  for (size_t i = lines.size(); i-- > 0;) {
    const std::string color = kColors[i % kColors.size()];
    if (!lines[i].half_width.empty())
      svg.path(around(lines[i], x, y), "band", lines[i].label + ", error band",
               " fill=\"" + color + "\"");
    svg.path(through(lines[i], x, y), "line", lines[i].label, " stroke=\"" + color + "\"");
    if (lines.size() < 2) continue;
    svg.text(key, kTop - 8, "end", lines[i].label);
    key -= 7.0 * static_cast<double>(lines[i].label.size()) + 8;
    svg.rect(key - 12, kTop - 17, 10, 10, "key", lines[i].label, " fill=\"" + color + "\"");
    key -= 26;
  }
  return svg.str();
}

}  // namespace curvq
