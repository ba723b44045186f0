// INI files with options.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace curvq::cli {

// Key and value of every line `key = value`, in order; keys below a line [section] become
// section.key. A byte order mark at the start is skipped. `#` starts a comment at the start of a
// line or behind white space. Throws UsageError naming the file, and the line or key, if it cannot
// be read, for a line of another form, a key without a value, and for a `#` inside a value, which
// the format cannot carry.
std::vector<std::pair<std::string, std::string>> read_config_file(const std::string& path);

}  // namespace curvq::cli
