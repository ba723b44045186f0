// What the kinds of charts share.
#pragma once

#include <string>

namespace curvq::report {

// An SVG element's text, piece by piece.
class Svg {
 public:
  Svg(const std::string& kind, double width, double height, const std::string& title);

  void text(double x, double y, const std::string& anchor, const std::string& text);
  void line(double x1, double y1, double x2, double y2, const std::string& css);
  // `more`: further attributes.
  void rect(double x, double y, double width, double height, const std::string& css,
            const std::string& tooltip, const std::string& more = "");
  void path(const std::string& d, const std::string& css, const std::string& tooltip,
            const std::string& more = "");
  void markup(const std::string& text) { body_ += text; }
  std::string str() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

// Numbers of coordinates: two decimals.
std::string coordinate(double value);

// A value's place between two ends of an axis.
struct Scale {
  double low, high;  // values
  double from, to;   // pixels
  bool logarithmic = false;

  double at(double value) const;
};

// The axis of a horizontal (below) or vertical (left) scale with ticks and grid lines.
void draw_x_axis(Svg& svg, const Scale& x, double top, double bottom, const std::string& title);
void draw_y_axis(Svg& svg, const Scale& y, double left, double right, const std::string& title);

std::string empty_chart(const std::string& kind, const std::string& title);

}  // namespace curvq::report
