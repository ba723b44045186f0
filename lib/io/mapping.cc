#include "io/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "curvq/core/error.h"
#include "io/posix.h"

namespace curvq::io {

Mapping::Mapping(const std::string& path, const char* kind) {
  // Opening a pipe would wait for a writer, unless it is not blocking.
  const FileDescriptor fd(path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    throw ResourceError(path + ": cannot be read: " + errno_text(errno));
  }
  if (S_ISDIR(info.st_mode)) {
    throw FormatError(path + ": is a directory, not a " + kind + " file");
  }
  if (!S_ISREG(info.st_mode)) throw FormatError(path + ": is not a regular file");
  bytes_ = static_cast<uint64_t>(info.st_size);
  if (bytes_ == 0) throw FormatError(path + ": is empty, fetch it again");
  void* address = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    throw ResourceError(path + ": cannot be mapped: " + errno_text(errno));
  }
  data_ = static_cast<std::byte*>(address);
}

Mapping::~Mapping() { ::munmap(data_, bytes_); }

void release_pages(const std::byte* data, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  // Only advice: a failure changes nothing.
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace curvq::io
