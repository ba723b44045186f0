// Progress of long work: one line on stderr with the share done and the time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace curvq {

// kAuto draws a line that rewrites itself where stderr is a terminal and nothing elsewhere;
// kPlain prints a line at every tenth; kNone is silent.
enum class ProgressMode { kAuto, kPlain, kNone };
void set_progress_mode(ProgressMode mode);

// One piece of work of `total` equal steps. Not thread-safe. The line is removed at destruction.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Moves on by `steps`; `detail` names what is being worked on.
  void advance(int64_t steps = 1, const std::string& detail = "");

 private:
  void draw(const std::string& detail);

  std::string label_;
  int64_t total_, done_ = 0, last_tenth_ = -1;
  bool visible_, terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

}  // namespace curvq
