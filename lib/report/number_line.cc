#include <cmath>

#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "report/chart.h"

namespace curvq {

using report::Scale;
using report::Svg;

std::string NumberLine::svg() const {
  constexpr double kTop = 30, kRow = 26, kLeft = 130, kRight = 900;
  if (rows.empty()) return report::empty_chart("levels", title);
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  const Scale x{low, high, kLeft, kRight - 12};
  Svg svg("levels", kRight, bottom + 44, title);
  draw_x_axis(svg, x, kTop, bottom, value_title);
  double y = kTop;
  for (const Row& row : rows) {
    const double middle = y + kRow / 2;
    svg.text(kLeft - 6, middle + 4, "end", row.label);
    svg.line(kLeft, middle, kRight - 12, middle, "axis");
    for (const double value : row.values) {
      if (!std::isfinite(value) || value < low || value > high) continue;
      svg.rect(x.at(value) - 0.75, middle - 8, 1.5, 16, "bar",
               row.label + ": " + number_text(value));
    }
    y += kRow;
  }
  return svg.str();
}

}  // namespace curvq
