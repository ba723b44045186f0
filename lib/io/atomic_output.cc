#include "curvq/io/atomic_output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/posix.h"
#include "io/replace.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;

// The target's canonical parent (made if missing) and its own name, which is not resolved.
fs::path resolve_target(const std::string& target) {
  if (target.empty()) throw UsageError("the output has an empty name");
  fs::path path(target);
  while (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  std::error_code error;
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..") {
    path = fs::canonical(path, error);
    if (error) throw UsageError(target + ": does not exist, so it cannot name the output");
  }
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fs::create_directories(parent, error);
  if (error)
    throw ResourceError(parent.string() + ": cannot be made: " + io::errno_text(error.value()));
  const fs::path place = fs::canonical(parent, error);
  if (error) throw ResourceError(parent.string() + ": " + io::errno_text(error.value()));
  return path.has_filename() ? place / path.filename() : place;
}

bool contains_current_directory(const fs::path& directory) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const auto end = std::mismatch(directory.begin(), directory.end(), here.begin(), here.end());
  return !error && end.first == directory.end();
}

void check_target(const fs::path& target, AtomicOutput::Kind kind, bool overwrite) {
  const std::string name = target.string();
  const bool wants_directory = kind == AtomicOutput::Kind::kDirectory;
  const fs::file_status status = fs::symlink_status(target);
  if (!fs::exists(status)) return;
  if (fs::is_symlink(status)) {
    throw UsageError(name + ": is a symlink; name the place that it points to, or another");
  }
  if (!fs::is_directory(status) && !fs::is_regular_file(status)) {
    throw UsageError(name + ": is a device or pipe, which cannot be replaced; choose another name");
  }
  if (fs::is_directory(status) != wants_directory) {
    throw UsageError(name +
                     (wants_directory ? ": is a file, and a directory is to be written"
                                      : ": is a directory, and a file is to be written") +
                     "; choose another name");
  }
  if (wants_directory && contains_current_directory(target)) {
    throw UsageError(name +
                     ": contains the current directory; choose a directory beside or below it");
  }
  if (overwrite || (wants_directory && fs::is_empty(target))) return;
  throw UsageError(name + ": exists" + (wants_directory ? " and is not empty" : "") +
                   "; choose another name or give --overwrite");
}

// Removes what dead processes left for this target. One with our own id is from an earlier process
// too: containers hand out the same small ids again.
void remove_stale(const fs::path& target) {
  const std::string prefix = format(".%s.curvq-", target.filename().c_str());
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(target.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(prefix, 0) != 0) continue;
    const std::string digits = name.substr(prefix.size());
    if (digits.empty() || digits.size() > 9 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const pid_t pid = std::stoi(digits);
    if (pid != ::getpid() && (pid == 0 || ::kill(pid, 0) == 0 || errno != ESRCH)) continue;
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
    log_info("removed " + entry.path().string() + ", left by an interrupted run");
  }
}

void sync_path(const fs::path& path) {
  const io::FileDescriptor fd(path.string(), O_RDONLY);
  io::sync_file(fd.get(), path.string());
}

void sync_tree(const fs::path& path) {
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const auto type = entry.symlink_status().type();
      if (type == fs::file_type::regular || type == fs::file_type::directory) {
        sync_path(entry.path());
      }
    }
  }
  sync_path(path);
}

}  // namespace

AtomicOutput::AtomicOutput(const std::string& target, Kind kind, bool overwrite)
    : kind_(kind), overwrite_(overwrite) {
  const fs::path path = resolve_target(target);
  try {
    check_target(path, kind, overwrite);
  } catch (const fs::filesystem_error& e) {
    throw ResourceError(path.string() + ": " + io::errno_text(e.code().value()));
  }
  target_ = path.string();
  remove_stale(path);
  temporary_ = path.parent_path() /
               format(".%s.curvq-%d", path.filename().c_str(), static_cast<int>(::getpid()));
  if (kind == Kind::kFile) {
    io::FileDescriptor(temporary_, O_WRONLY | O_CREAT | O_EXCL);
  } else if (::mkdir(temporary_.c_str(), 0777) != 0) {
    throw ResourceError(temporary_ + ": cannot be made: " + io::errno_text(errno));
  }
}

AtomicOutput::~AtomicOutput() {
  if (keep_) return;
  std::error_code error;
  fs::remove_all(temporary_, error);
  if (error) log_warning(temporary_ + ": cannot be removed: " + error.message());
}

void AtomicOutput::commit() {
  try {
    sync_tree(temporary_);
    const fs::file_status status = fs::symlink_status(target_);
    if (!overwrite_ || !fs::exists(status)) {
      io::move_new(temporary_, target_);
    } else if (kind_ == Kind::kFile) {
      io::replace_file(temporary_, target_);
    } else {
      io::replace_directory(temporary_, target_);
    }
    keep_ = true;
    sync_path(fs::path(target_).parent_path());
  } catch (const fs::filesystem_error& e) {
    throw ResourceError(e.path1().string() + ": " + io::errno_text(e.code().value()));
  } catch (const ResourceError& e) {
    std::error_code ignored;
    if (keep_ || !fs::exists(temporary_, ignored)) throw;
    keep_ = true;
    throw ResourceError(std::string(e.what()) + "; the finished output is kept at " + temporary_);
  }
}

}  // namespace curvq
