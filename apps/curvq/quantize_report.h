// The results of quantizing, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/quantize.h"
#include "curvq/io/json.h"
#include "quantize_guard.h"

namespace curvq::cli {

OrderedJson quantize_results_json(const QuantizeReport& report, const QuantizeOptions& options);
std::string quantize_results_text(const QuantizeReport& report, const QuantizeOptions& options,
                                  bool color);

// A page out of the command's JSON document.
std::string quantize_page(const OrderedJson& document);

// Layers that are left as they are, with the reasons.
OrderedJson kept_json(const std::vector<PlannedLayer>& kept);

OrderedJson guard_json(const Guard& guard);
// One line a candidate; empty without any.
std::string guard_text(const Guard& guard);

}  // namespace curvq::cli
