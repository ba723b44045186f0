// The options of every command put into effect.
#include <unistd.h>

#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "interrupt.h"
#include "options.h"

namespace curvq::cli {
namespace {

void apply_device(const Options& options) {
  const std::string device = options.text("device");
  if (device == "auto" || device == "cpu") return;
  const bool indexed = device.compare(0, 5, "cuda:") == 0 && device.size() > 5 &&
                       device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "cuda" && !indexed) {
    throw UsageError(options.where("device") + " " + device +
                     ": must be one of auto, cpu, cuda, cuda:N");
  }
  throw UnsupportedError(options.where("device") + " " + device +
                         ": this build of curvq has no CUDA; use --device cpu");
}

// Fails now rather than after an hour's work.
void check_file(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) throw UsageError(path + ": --" + option + " is a directory");
  fs::path parent = fs::path(path).parent_path();
  if (parent.empty()) parent = ".";
  if (fs::exists(parent, error) && access(parent.c_str(), W_OK) != 0) {
    throw ResourceError(path + ": --" + option + " cannot be written there");
  }
}

}  // namespace

void Options::apply_common() const {
  if (flag("quiet")) set_log_level(LogLevel::kError);
  const int verbose = count("verbose");
  if (verbose > 0) set_log_level(verbose > 1 ? LogLevel::kDebug : LogLevel::kInfo);
  if (has("log-file")) set_log_file(text("log-file"));

  const std::string progress = flag("quiet") ? "none" : text("progress");
  set_progress_mode(progress == "none"    ? ProgressMode::kNone
                    : progress == "plain" ? ProgressMode::kPlain
                                          : ProgressMode::kAuto);
  if (has("threads")) set_num_threads(static_cast<int>(integer("threads")));
  if (has("device")) apply_device(*this);
  for (const char* option : {"json-file", "report"}) {
    if (has(option)) check_file(option, text(option));
  }
  for (const Declared& option : options_) {
    if (option.kind == Kind::kOutput && has(option.name)) remove_on_interrupt(text(option.name));
  }
}

}  // namespace curvq::cli
