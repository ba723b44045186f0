// Moving a finished file or directory into place.
#pragma once

#include <string>

namespace curvq::io {

// How an existing non-empty directory gives way. kExchange swaps both in one step; kBackup, for
// file systems that cannot, renames the old one away, and back if the second rename fails.
enum class ReplaceMethod { kAuto, kExchange, kBackup };

// Moves `from` to `to`. Throws ResourceError if it cannot; `from` and `to` are then as before.
void move_new(const std::string& from, const std::string& to);
void replace_file(const std::string& from, const std::string& to);
void replace_directory(const std::string& from, const std::string& to,
                       ReplaceMethod method = ReplaceMethod::kAuto);

}  // namespace curvq::io
