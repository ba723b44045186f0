// The few system calls that reading and writing files takes, with errors as exceptions.
#pragma once

#include <cstdint>
#include <string>

namespace curvq::io {

// Owns a file descriptor.
class FileDescriptor {
 public:
  // open(2) with O_CLOEXEC. Throws ResourceError naming path and reason.
  FileDescriptor(const std::string& path, int flags);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&&) = delete;

  int get() const { return fd_; }
  void close();

 private:
  int fd_ = -1;
};

// "no space left on device": the text of errno, lower case.
std::string errno_text(int error);

// Writes all bytes at `offset`, or at the current position if it is negative. Throws ResourceError
// naming path, bytes and reason.
void write_all(int fd, const std::string& path, const void* data, int64_t bytes, int64_t offset);

// fsync(2); directories too. Throws ResourceError.
void sync_file(int fd, const std::string& path);

// Bytes that this user may still write to the file system of `path`, which need not exist yet.
int64_t free_bytes(const std::string& path);

}  // namespace curvq::io
