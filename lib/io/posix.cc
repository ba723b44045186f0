#include "io/posix.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"

namespace curvq {
namespace io {

FileDescriptor::FileDescriptor(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_ >= 0) return;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  throw ResourceError(path + ": cannot be opened" + (writes ? " for writing: " : ": ") +
                      errno_text(errno));
}

FileDescriptor::~FileDescriptor() { close(); }

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

void FileDescriptor::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

void write_all(int fd, const std::string& path, const void* data, int64_t bytes, int64_t offset) {
  const char* from = static_cast<const char*>(data);
  for (int64_t done = 0; done < bytes;) {
    // Linux writes at most 2^31 - 4096 bytes a call.
    const auto count = static_cast<size_t>(std::min<int64_t>(bytes - done, int64_t{1} << 30));
    const ssize_t written = offset < 0 ? ::write(fd, from + done, count)
                                       : ::pwrite(fd, from + done, count, offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string reason = written == 0 ? "nothing was written" : errno_text(errno);
      throw ResourceError(format("%s: cannot write %lld bytes: %s", path.c_str(),
                                 static_cast<long long>(bytes), reason.c_str()));
    }
    done += written;
  }
}

void sync_file(int fd, const std::string& path) {
  // EINVAL: a file system or device that has nothing to sync.
  if (::fsync(fd) != 0 && errno != EINVAL) {
    throw ResourceError(path + ": cannot be flushed to disk: " + errno_text(errno));
  }
}

int64_t free_bytes(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path place = fs::absolute(path, ignored);
  while (!fs::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) {
    throw ResourceError(place.string() + ": free space is unknown: " + errno_text(errno));
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace io

void require_disk_space(const std::string& path, int64_t bytes) {
  const int64_t available = io::free_bytes(path);
  if (bytes > available) {
    throw ResourceError(
        format("%s: %lld bytes are wanted, %lld are free; free some space or choose "
               "another place",
               path.c_str(), static_cast<long long>(bytes), static_cast<long long>(available)));
  }
}

}  // namespace curvq
