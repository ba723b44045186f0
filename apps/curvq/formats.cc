// curvq formats: the number formats, their values and what rounding to them costs.
#include <algorithm>
#include <cmath>

#include "commands.h"
#include "curvq/core/log.h"
#include "curvq/formats/error_bounds.h"
#include "curvq/io/atomic_output.h"
#include "curvq/report/chart.h"
#include "curvq/report/numbers.h"
#include "curvq/report/page.h"
#include "curvq/report/table.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options
      .add_text("report", "F.html",
                "draw the levels, and the error against the magnitude, on a page")
      .add_example("formats --report formats.html");
}

// "A/15", "A/5.667"; "0" for nothing.
std::string fraction_of_a(double fraction) {
  if (fraction == 0) return "0";
  const double inverse = 1 / fraction;
  const bool whole = std::abs(inverse - std::round(inverse)) < 1e-9 * inverse;
  return "A/" + (whole ? with_separators(static_cast<int64_t>(std::round(inverse)))
                       : number_text(inverse));
}

std::string zero_text(const FormatBounds& bounds) {
  if (bounds.zero_low == bounds.zero_high) return fraction_of_a(bounds.zero_low);
  return fraction_of_a(bounds.zero_low) + " to " + fraction_of_a(bounds.zero_high);
}

std::string full_name(const FormatBounds& bounds) {
  return bounds.name == "fp8" ? bounds.name + " " + bounds.element : bounds.name;
}

// All values of an element where there are few of them.
std::string values_text(const FormatBounds& bounds) {
  if (bounds.element != "E2M1")
    return bounds.element.starts_with("integers")
               ? bounds.element
               : format("%s: %zu magnitudes up to %g", bounds.element.c_str(), bounds.levels.size(),
                        bounds.levels.back());
  std::string text = "E2M1: +-{";
  for (size_t i = 0; i < bounds.levels.size(); ++i)
    text += (i > 0 ? " " : "") + format("%g", bounds.levels[i]);
  return text + "}";
}

OrderedJson to_json(const FormatBounds& bounds) {
  OrderedJson json = {{"name", bounds.name},
                      {"element", bounds.element},
                      {"magnitudes", bounds.levels},
                      {"scale", bounds.scale},
                      {"bits_per_weight", bounds.bits_per_weight},
                      {"max_error", bounds.max_error},
                      {"zero_below", {bounds.zero_low, bounds.zero_high}}};
  if (bounds.relative_error > 0) {
    json["relative_error"] = bounds.relative_error;
    json["relative_from"] = bounds.relative_from;
  }
  return json;
}

// |w - q(w)| / A over |w| / A, at the A / scale where it gets largest.
Line error_line(const FormatBounds& bounds) {
  constexpr int kPoints = 2000;
  Line line;
  line.label = full_name(bounds) + ", " + bounds.scale;
  for (int i = 0; i <= kPoints; ++i) {
    const double x = static_cast<double>(i) / kPoints;
    line.x.push_back(x);
    line.y.push_back(rounding_error(bounds.levels, x * bounds.worst_ratio) / bounds.worst_ratio);
  }
  return line;
}

std::string page_of(const std::vector<FormatBounds>& all) {
  HtmlPage page("Number formats");
  page.add_text(
      "A is the largest magnitude of the weights that share a scale. Each format is drawn at the A "
      "where its error is largest.");
  page.add_heading("Levels");
  NumberLine levels{"Values that a weight can have", "w / A", -1.1, 1.1, {}};
  for (const FormatBounds& bounds : all) {
    NumberLine::Row row{full_name(bounds), {}};
    for (const double level : bounds.levels) {
      row.values.push_back(level / bounds.worst_ratio);
      if (level > 0) row.values.push_back(-level / bounds.worst_ratio);
    }
    levels.rows.push_back(std::move(row));
  }
  page.add_chart(levels.svg());
  page.add_heading("Error against magnitude");
  for (const FormatBounds& bounds : all) {
    page.add_chart(LineChart{full_name(bounds) + ": error of a weight",
                             "|w| / A",
                             "error / A",
                             /*log_y=*/false,
                             {error_line(bounds)}}
                       .svg());
    page.add_text(format("Scale %s, %.3f bits a weight: an error of at most %s; zero below %s.",
                         bounds.scale.c_str(), bounds.bits_per_weight,
                         fraction_of_a(bounds.max_error).c_str(), zero_text(bounds).c_str()));
  }
  return page.str();
}

int run(const Options& options, Output& output) {
  const std::vector<FormatBounds> all = format_bounds();
  using Align = Table::Align;
  Table table({{"format"},
               {"values"},
               {"scale"},
               {"bits", Align::kRight},
               {"error <=", Align::kRight},
               {"relative <=", Align::kRight},
               {"zero up to", Align::kRight}});
  output.results()["formats"] = OrderedJson::array();
  for (const FormatBounds& bounds : all) {
    output.results()["formats"].push_back(to_json(bounds));
    const std::string relative = bounds.relative_error == 0
                                     ? ""
                                     : format("%g %% from %s", 100 * bounds.relative_error,
                                              fraction_of_a(bounds.relative_from).c_str());
    table.add_row({bounds.name, values_text(bounds), bounds.scale,
                   format("%.3f", bounds.bits_per_weight), fraction_of_a(bounds.max_error),
                   relative, zero_text(bounds)});
  }
  output.text(table.str(output.color()));
  output.text(
      "\nA: largest magnitude of the weights that share a scale. bits: a weight, scales included "
      "(4096 x 4096; int4 in\ngroups of 128, int8 and fp8 a scale a row, in bfloat16). Errors are "
      "of "
      "rounding to nearest and reached; of\nnvfp4 while the block's scale is a normal E4M3 "
      "number.\n");
  if (options.has("report")) write_file(options.text("report"), page_of(all));
  return 0;
}

}  // namespace

const Command kFormatsCommand = {
    "formats", "the number formats: values, ranges, bits, error bounds", declare, run};

}  // namespace curvq::cli
