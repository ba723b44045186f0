#include "eval_bounds.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq::cli {

std::vector<Bound> parse_bounds(const Options& options, const OrderedJson& results,
                                const OrderedJson& of_reference) {
  std::vector<Bound> bounds;
  for (const std::string& text : options.list("fail-if")) {
    const size_t at = text.find_first_of("<>");
    Bound bound{text, text.substr(0, std::min(at, text.size())),
                at != std::string::npos && text[at] == '>', 0};
    size_t used = 0;
    try {
      if (at != std::string::npos) bound.limit = std::stod(text.substr(at + 1), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (at == std::string::npos || used == 0 || used != text.size() - at - 1 ||
        std::isnan(bound.limit)) {
      throw UsageError("--fail-if '" + text + "' does not read KEY>NUMBER or KEY<NUMBER");
    }
    if (!results.contains(bound.key) && !of_reference.contains(bound.key))
      throw UsageError("--fail-if '" + text + "': eval has no result of that name");
    if (!options.has("reference") && !results.contains(bound.key)) {
      throw UsageError("--fail-if '" + text + "' needs --reference");
    }
    bounds.push_back(bound);
  }
  return bounds;
}

int check_bounds(const std::vector<Bound>& bounds, const OrderedJson& results) {
  int exit_code = 0;
  for (const Bound& bound : bounds) {
    const double value = results[bound.key].get<double>();
    if (bound.above ? !(value > bound.limit) : !(value < bound.limit)) continue;
    log_error(
        format("check '%s' failed: %s is %.6g", bound.text.c_str(), bound.key.c_str(), value));
    exit_code = 6;
  }
  return exit_code;
}

}  // namespace curvq::cli
