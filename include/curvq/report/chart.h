// Charts as inline SVG, for pages without scripts.
//
// Every mark carries a class (bar, line, band, cell) and a <title> with its exact value, which
// browsers show under the pointer. Values that are not finite are left out; a chart of nothing says
// so. Texts are escaped.
#pragma once

#include <string>
#include <vector>

namespace curvq {

struct Bar {
  std::string label;
  double value = 0;
  double error = 0;  // half the length of its whisker; 0: none
};

// Horizontal bars from zero, one below the other. Where all values are positive and the largest is
// more than a thousand times the smallest, lengths are logarithmic.
struct BarChart {
  std::string title;
  std::string value_title;  // what the values are
  std::vector<Bar> bars;

  std::string svg() const;
};

struct Line {
  std::string label;
  std::vector<double> x, y;        // as many
  std::vector<double> half_width;  // of the band around y; empty: none
};

struct LineChart {
  std::string title, x_title, y_title;
  bool log_y = false;  // values of zero or less are drawn at the bottom
  std::vector<Line> lines;

  std::string svg() const;
};

// A square matrix of values >= 0, darker where larger, by the logarithm over at most six decades.
struct HeatMap {
  std::string title, value_title;
  std::vector<std::string> labels;          // of rows and columns
  std::vector<std::vector<double>> values;  // [labels][labels]

  std::string svg() const;
};

// Marks on lines from `low` to `high`, one line below the other.
struct NumberLine {
  struct Row {
    std::string label;
    std::vector<double> values;
  };
  std::string title, value_title;
  double low = 0, high = 1;  // low < high; values outside are left out
  std::vector<Row> rows;

  std::string svg() const;
};

// "&lt;" for "<", and so on.
std::string escaped(const std::string& text);

// 3 to 8 round numbers (1, 2 or 5 times a power of ten apart) within [low, high], low < high.
std::vector<double> round_ticks(double low, double high);

}  // namespace curvq
