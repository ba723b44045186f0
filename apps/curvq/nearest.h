// Suggestions for misspelt names.
#pragma once

#include <string>
#include <vector>

namespace curvq::cli {

// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to
// `name`; empty if none is within a third of its length (at least 2).
std::string nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace curvq::cli
