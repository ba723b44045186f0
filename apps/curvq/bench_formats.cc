#include "bench_formats.h"

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/conversion_bench.h"
#include "curvq/report/table.h"

namespace curvq::cli {

int bench_formats(const Options& options, Output& output) {
  if (!options.positional("MODEL").empty() || options.given("data"))
    throw UsageError("bench formats takes neither MODEL nor --data: its weights are random");
  const int rounds = options.given("rounds") ? static_cast<int>(options.integer("rounds")) : 9;
  using Align = Table::Align;
  Table table({{"format"},
               {"scale rule"},
               {"quantize GB/s", Align::kRight},
               {"dequantize GB/s", Align::kRight}});
  OrderedJson rows = OrderedJson::array();
  for (const ConversionRate& rate : bench_conversions(rounds)) {
    const std::string rule(scale_rule_name(rate.scheme.rule));
    Scheme plain = rate.scheme;
    plain.rule = ScaleRule::kCurvq;  // named by itself
    table.add_row({plain.describe(), rule, format("%.2f", rate.quantize / 1e9),
                   format("%.2f", rate.dequantize / 1e9)});
    rows.push_back({{"format", plain.describe()},
                    {"scale_rule", rule},
                    {"quantize_gbps", rate.quantize / 1e9},
                    {"dequantize_gbps", rate.dequantize / 1e9}});
  }
  output.results()["threads"] = num_threads();
  output.results()["rows"] = std::move(rows);
  output.text(table.str(output.color()) +
              format("bytes of float32, processor time, one of %d threads\n", num_threads()));
  return 0;
}

}  // namespace curvq::cli
