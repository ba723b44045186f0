// Messages to people. Everything goes to stderr (and to a log file where one is set), never to
// stdout. Safe to call concurrently.
#pragma once

#include <string>
#include <string_view>

namespace curvq {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. Default kWarning.
void set_log_level(LogLevel level);
LogLevel log_level();

// Also appends every message, whatever the level, to `path`. Throws ResourceError if it cannot
// be opened.
void set_log_file(const std::string& path);

void log_message(LogLevel level, std::string_view text);
inline void log_error(std::string_view text) { log_message(LogLevel::kError, text); }
inline void log_warning(std::string_view text) { log_message(LogLevel::kWarning, text); }
inline void log_info(std::string_view text) { log_message(LogLevel::kInfo, text); }
inline void log_debug(std::string_view text) { log_message(LogLevel::kDebug, text); }

// printf-style formatting into a std::string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* fmt, ...);

}  // namespace curvq
