// Patterns that users select names of layers and parameters with.
#pragma once

#include <string>

namespace curvq {

// True if `pattern` matches the whole of `name`: a glob (*, ?, [...]), or, behind "re:", a regular
// expression that matches from the start as Python's re.match does. Throws UsageError for an
// invalid regular expression.
bool pattern_matches(const std::string& pattern, const std::string& name);

}  // namespace curvq
