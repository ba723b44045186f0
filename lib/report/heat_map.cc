#include <algorithm>
#include <array>
#include <cmath>

#include "curvq/core/log.h"
#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "report/chart.h"

namespace curvq {

using report::Svg;

namespace {

constexpr double kDecades = 6;

// Share 0 to 1 of the way from nearly white to dark blue.
std::string color(double share) {
  constexpr std::array<std::array<double, 3>, 3> kStops = {
      {{247, 251, 255}, {107, 174, 214}, {8, 48, 107}}};
  const double place = std::clamp(share, 0.0, 1.0) * 2;
  const size_t stop = place < 1 ? 0 : 1;
  const double within = place - static_cast<double>(stop);
  std::array<int, 3> rgb;
  for (size_t i = 0; i < 3; ++i)
    rgb[i] = static_cast<int>(
        std::lround(kStops[stop][i] + within * (kStops[stop + 1][i] - kStops[stop][i])));
  return format("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

}  // namespace

std::string HeatMap::svg() const {
  const auto n = static_cast<double>(labels.size());
  double largest = 0, smallest = HUGE_VAL;
  size_t longest = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    longest = std::max(longest, labels[i].size());
    for (const double value : values[i]) {
      if (!std::isfinite(value) || value <= 0) continue;
      largest = std::max(largest, value);
      smallest = std::min(smallest, value);
    }
  }
  if (largest == 0) return report::empty_chart("heat", title);
  const double decades = std::clamp(std::log10(largest / smallest), 1.0, kDecades);
  const auto share = [&](double value) {
    return value > 0 ? 1 + std::log10(value / largest) / decades : 0;
  };
  const double cell = std::clamp(560 / n, 3.0, 44.0);
  const bool named = cell >= 11;  // the height of a line
  const double left = named ? std::min(420.0, 38 + 7.0 * static_cast<double>(longest)) : 8;
  constexpr double kTop = 44;
  const double size = cell * n, key = left + size + 24;
  Svg svg("heat", key + 150, std::max(kTop + size + 10, 230.0), title);
  for (size_t i = 0; i < labels.size(); ++i) {
    const double y = kTop + cell * static_cast<double>(i);
    if (named) {
      svg.text(left - 6, y + cell / 2 + 4, "end", std::to_string(i + 1) + "  " + labels[i]);
      svg.text(left + cell * (static_cast<double>(i) + 0.5), kTop - 5, "middle",
               std::to_string(i + 1));
    }
    for (size_t j = 0; j < labels.size(); ++j) {
      const double value = values[i][j];
      if (!std::isfinite(value)) continue;
      svg.rect(left + cell * static_cast<double>(j), y, cell, cell, "cell",
               labels[i] + ", " + labels[j] + ": " + number_text(value),
               " fill=\"" + color(share(value)) + "\"");
    }
  }
  constexpr int kSteps = 40;
  constexpr double kKeyHeight = 150;
  for (int i = 0; i < kSteps; ++i)
    svg.rect(key, kTop + kKeyHeight * i / kSteps, 16, kKeyHeight / kSteps + 0.5, "key", "",
             " fill=\"" + color(1 - (i + 0.5) / kSteps) + "\"");
  svg.text(key + 22, kTop + 10, "start", number_text(largest, 3));
  svg.text(key + 22, kTop + kKeyHeight, "start", number_text(largest * std::pow(10, -decades), 3));
  svg.text(key, kTop + kKeyHeight + 20, "start", value_title);
  return svg.str();
}

}  // namespace curvq
