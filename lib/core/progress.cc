#include "curvq/core/progress.h"

#include <unistd.h>

#include <cstdio>

#include "curvq/core/log.h"

namespace curvq {
namespace {

ProgressMode g_mode = ProgressMode::kAuto;

std::string duration(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return format("%lld s", static_cast<long long>(s));
  if (s < 3600)
    return format("%lld:%02lld min", static_cast<long long>(s / 60),
                  static_cast<long long>(s % 60));
  return format("%lld:%02lld h", static_cast<long long>(s / 3600),
                static_cast<long long>(s / 60 % 60));
}

}  // namespace

void set_progress_mode(ProgressMode mode) { g_mode = mode; }

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total > 0 ? total : 1),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_ - std::chrono::hours(1)) {
  visible_ = g_mode == ProgressMode::kPlain || (g_mode == ProgressMode::kAuto && terminal_);
}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(int64_t steps, const std::string& detail) {
  done_ += steps;
  if (visible_) draw(detail);
}

void Progress::draw(const std::string& detail) {
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left = done_ > 0 ? elapsed * (total_ - done_) / done_ : 0;
  const std::string text = format(
      "%s %3lld %%, %s left%s%s", label_.c_str(), static_cast<long long>(100 * done_ / total_),
      duration(left).c_str(), detail.empty() ? "" : ": ", detail.c_str());
  if (g_mode == ProgressMode::kPlain) {
    const int64_t tenth = 10 * done_ / total_;
    if (tenth == last_tenth_) return;
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  if (now - last_draw_ < std::chrono::milliseconds(100) && done_ < total_) return;
  last_draw_ = now;
  drawn_ = true;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
}

}  // namespace curvq
