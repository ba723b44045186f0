#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "curvq/core/log.h"

namespace curvq::cli {
namespace {

namespace fs = std::filesystem;

struct Watch {
  std::mutex mutex;
  std::vector<fs::path> temporaries;
  std::atomic<bool> interrupted{false};
};

// Never destroyed: the watching thread may run until the very end.
Watch& watch() {
  static Watch* instance = new Watch;
  return *instance;
}

// The work goes on meanwhile and may still create files in there.
void remove_persistently(const fs::path& path) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::error_code error;
    fs::remove_all(path, error);
    if (!error && !fs::exists(path, error)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

[[noreturn]] void wait_for_signal(const sigset_t& signals) {
  int signal = SIGTERM;
  sigwait(&signals, &signal);
  watch().interrupted = true;
  if (isatty(STDERR_FILENO)) std::fputs("\r\033[K", stderr);  // a line of progress
  log_error("interrupted");
  {
    std::lock_guard<std::mutex> lock(watch().mutex);
    for (const fs::path& path : watch().temporaries) remove_persistently(path);
  }
  _exit(128 + signal);
}

}  // namespace

void watch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] { wait_for_signal(signals); }).detach();
}

void remove_on_interrupt(const std::string& target) {
  fs::path path = fs::absolute(target).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  // The name that AtomicOutput gives to what is not finished.
  path.replace_filename(
      format(".%s.curvq-%d", path.filename().c_str(), static_cast<int>(getpid())));
  std::lock_guard<std::mutex> lock(watch().mutex);
  watch().temporaries.push_back(path);
}

void wait_if_interrupted() {
  while (watch().interrupted) pause();
}

}  // namespace curvq::cli
