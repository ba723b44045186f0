#include "curvq/core/pattern.h"

#include <fnmatch.h>

#include <regex>

#include "curvq/core/error.h"

namespace curvq {

bool pattern_matches(const std::string& pattern, const std::string& name) {
  if (pattern.rfind("re:", 0) != 0) return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  try {
    return std::regex_search(name, std::regex(pattern.substr(3)),
                             std::regex_constants::match_continuous);
  } catch (const std::regex_error& error) {
    throw UsageError("pattern '" + pattern + "' is not a regular expression: " + error.what());
  }
}

}  // namespace curvq
