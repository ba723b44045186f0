// The multiple-choice knapsack: one item of every group, at least cost, within a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace curvq::internal {

struct KnapsackItem {
  int64_t weight = 0;  // 0 or more
  double cost = 0;     // finite
};

struct KnapsackSolution {
  std::vector<size_t> choice;  // by group
  int64_t weight = 0;
  double cost = 0;
  double relaxation = 0;  // the least cost if items could be mixed: no solution costs less
  int64_t states = 0;     // partial solutions that were looked at
};

// Exact, but for costs that differ by less than 1e-12 of their sum; the same every time. Dynamic
// programming over the groups: of partial solutions those stay that none of at most their weight
// undercuts, and whose linear relaxation over the groups still to come (Sinha and Zoltners 1979)
// does not cost more than a solution that is known. Throws std::logic_error for a group without
// items; returns an empty choice if even the lightest items are too heavy.
KnapsackSolution solve_knapsack(const std::vector<std::vector<KnapsackItem>>& groups,
                                int64_t capacity);

}  // namespace curvq::internal
