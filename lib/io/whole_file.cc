#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "io/posix.h"

namespace curvq {

std::string read_file(const std::string& path) {
  const io::FileDescriptor fd(path, O_RDONLY);
  struct stat info {};
  std::string content;
  if (::fstat(fd.get(), &info) == 0 && info.st_size > 0) {
    content.reserve(static_cast<size_t>(info.st_size));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof(buffer));
    if (count == 0) return content;
    if (count > 0) {
      content.append(buffer, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw ResourceError(path + ": cannot be read: " + io::errno_text(errno));
    }
  }
}

void write_file(const std::string& path, const std::string& content) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const auto bytes = static_cast<int64_t>(content.size());
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    const io::FileDescriptor fd(path, O_WRONLY);
    return io::write_all(fd.get(), path, content.data(), bytes, -1);
  }
  const fs::path place = fs::is_regular_file(status) ? fs::canonical(path, error) : fs::path(path);
  AtomicOutput output(error ? path : place.string(), AtomicOutput::Kind::kFile, true);
  {
    const io::FileDescriptor fd(output.path(), O_WRONLY | O_TRUNC);
    io::write_all(fd.get(), path, content.data(), bytes, 0);
  }
  output.commit();
}

}  // namespace curvq
