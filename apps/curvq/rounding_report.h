// What quantize() did to choose codes, beside what quantize_report.h tells.
#pragma once

#include <string>

#include "curvq/compress/quantize.h"
#include "curvq/io/json.h"

namespace curvq::cli {

// quantize_results_json() with the name of the method, the candidates, and by layer the error before
// sweeps and the nearest plane's bound.
OrderedJson rounding_results_json(const QuantizeReport& report, const QuantizeOptions& options);
// One line; empty where no layer has a bound.
std::string plane_bound_text(const QuantizeReport& report);

}  // namespace curvq::cli
