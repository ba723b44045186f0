#include <algorithm>
#include <cmath>

#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "report/chart.h"

namespace curvq {

using report::Scale;
using report::Svg;

std::string BarChart::svg() const {
  constexpr double kTop = 30, kRow = 20, kRight = 900, kValueRoom = 130;
  std::vector<Bar> shown;
  double low = 0, high = 0, smallest = HUGE_VAL;
  size_t longest = 0;
  for (const Bar& bar : bars) {
    if (!std::isfinite(bar.value)) continue;
    const double error = std::isfinite(bar.error) ? bar.error : 0;
    shown.push_back({bar.label, bar.value, error});
    low = std::min(low, bar.value - error);
    high = std::max(high, bar.value + error);
    smallest = std::min(smallest, bar.value);
    longest = std::max(longest, bar.label.size());
  }
  if (shown.empty()) return report::empty_chart("bars", title);
  const bool logarithmic = smallest > 0 && high > 1000 * smallest;
  if (logarithmic) low = std::pow(10, std::floor(std::log10(smallest)));
  if (low == high) high = low + 1;
  const double left = std::min(420.0, 8 + 7.0 * static_cast<double>(longest));
  const double bottom = kTop + kRow * static_cast<double>(shown.size());
  const Scale x{low, high, left, kRight - kValueRoom, logarithmic};
  Svg svg("bars", kRight, bottom + 44, title);
  draw_x_axis(svg, x, kTop, bottom, value_title);
  const double zero = x.at(logarithmic ? low : 0);
  double y = kTop;
  for (const Bar& bar : shown) {
    const double end = x.at(bar.value), middle = y + kRow / 2;
    const std::string value =
        number_text(bar.value) + (bar.error > 0 ? " \u00b1 " + number_text(bar.error, 2) : "");
    svg.text(left - 6, middle + 4, "end", bar.label);
    svg.rect(std::min(zero, end), y + 3, std::abs(end - zero), kRow - 6, "bar",
             bar.label + ": " + value);
    const double farthest = std::max(zero, x.at(bar.value + bar.error));
    if (bar.error > 0)
      svg.line(x.at(bar.value - bar.error), middle, x.at(bar.value + bar.error), middle, "whisker");
    svg.text(farthest + 6, middle + 4, "start", value);
    y += kRow;
  }
  svg.line(zero, kTop, zero, bottom, "axis");
  return svg.str();
}

}  // namespace curvq
