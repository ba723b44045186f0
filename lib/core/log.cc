#include "curvq/core/log.h"

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <mutex>

#include "curvq/core/error.h"

namespace curvq {
namespace {

std::mutex g_mutex;
LogLevel g_level = LogLevel::kWarning;
std::ofstream g_file;

const char* prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error: ";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kDebug:
      return "debug: ";
  }
  return "";
}

}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

void set_log_file(const std::string& path) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_file.open(path, std::ios::app);
  if (!g_file) throw ResourceError(path + ": the log file cannot be opened for writing");
}

void log_message(LogLevel level, std::string_view text) {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::string line = prefix(level);
  line.append(text).push_back('\n');
  if (level <= g_level) {
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }
  if (g_file.is_open()) g_file << line << std::flush;
}

std::string format(const char* fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, fmt, args);
  va_end(args);
  std::string out(size > 0 ? size : 0, '\0');
  if (size > 0) std::vsnprintf(out.data(), out.size() + 1, fmt, again);
  va_end(again);
  return out;
}

}  // namespace curvq
