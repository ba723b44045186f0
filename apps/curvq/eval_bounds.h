// --fail-if of `curvq eval`.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace curvq::cli {

struct Bound {
  std::string text, key;
  bool above;
  double limit;
};

// 'kl_mean>0.1' and the like, checked before anything is computed: the keys are those of `results`,
// those of `of_reference` only with --reference.
std::vector<Bound> parse_bounds(const Options& options, const OrderedJson& results,
                                const OrderedJson& of_reference);

// The exit status: 6 and a message if a result is beyond a bound, else 0.
int check_bounds(const std::vector<Bound>& bounds, const OrderedJson& results);

}  // namespace curvq::cli
