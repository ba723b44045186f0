// Names of modules in compressed-tensors' `targets` and `ignore`.
#pragma once

#include <string>
#include <string_view>

namespace curvq::io {

// How well an entry fits a linear layer's name; a better one decides if several groups target it.
enum class ModuleMatch { kNone, kClass, kPattern, kName };

// `entry` is a full module name, "re:" and a regular expression that must match at the name's start
// (as Python's re.match does), or the class name "Linear". Throws FormatError naming the
// expression if it is not valid or takes too long to match.
ModuleMatch match_module(const std::string& entry, std::string_view name);

// Throws FormatError, with `origin` in front, if `entry` is a regular expression that is not valid.
void check_module_pattern(const std::string& entry, const std::string& origin);

}  // namespace curvq::io
