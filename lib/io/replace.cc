#include "io/replace.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/posix.h"

namespace curvq::io {
namespace {

namespace fs = std::filesystem;

// 0 or errno.
int rename_with(const std::string& from, const std::string& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

bool is_unsupported(int error) { return error == EINVAL || error == ENOSYS || error == ENOTSUP; }

[[noreturn]] void cannot_move(const std::string& from, const std::string& to, int error) {
  throw ResourceError(from + ": cannot be renamed to " + to + ": " + errno_text(error));
}

// The new one is in place already, so what cannot be removed is only in the way.
void remove_replaced(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warning(path + ": the replaced output cannot be removed: " + error.message());
}

}  // namespace

void move_new(const std::string& from, const std::string& to) {
  int error = rename_with(from, to, RENAME_NOREPLACE);
  // An empty directory may be taken; rename(2) refuses any other that exists.
  std::error_code ignored;
  if (is_unsupported(error) || (error == EEXIST && fs::is_directory(from, ignored))) {
    error = rename_with(from, to, 0);
  }
  if (error != 0) cannot_move(from, to, error);
}

void replace_file(const std::string& from, const std::string& to) {
  if (const int error = rename_with(from, to, 0)) cannot_move(from, to, error);
}

void replace_directory(const std::string& from, const std::string& to, ReplaceMethod method) {
  if (method != ReplaceMethod::kBackup) {
    const int error = rename_with(from, to, RENAME_EXCHANGE);
    if (error == 0) return remove_replaced(from);
    if (!is_unsupported(error) || method == ReplaceMethod::kExchange) cannot_move(from, to, error);
  }
  const fs::path target(to);
  const std::string backup =
      (target.parent_path() / format(".%s.curvq-old-%d", target.filename().c_str(), ::getpid()));
  if (const int error = rename_with(to, backup, 0)) cannot_move(to, backup, error);
  if (const int error = rename_with(from, to, 0)) {
    if (const int again = rename_with(backup, to, 0)) {
      throw ResourceError(to + ": is now at " + backup +
                          ", it cannot be renamed back: " + errno_text(again));
    }
    cannot_move(from, to, error);
  }
  remove_replaced(backup);
}

}  // namespace curvq::io
