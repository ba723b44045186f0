// The page of `curvq hessian --report`.
#pragma once

#include <string>

#include "curvq/io/json.h"

namespace curvq::cli {

// HTML of what `document`, the JSON object of the command, holds: traces and top eigenvalues by
// layer, spectral density, block norms, convergence of the estimators.
std::string hessian_page(const OrderedJson& document);

}  // namespace curvq::cli
