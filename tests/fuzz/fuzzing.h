// What the fuzz targets share. A target catches curvq::Error, which is how bad input is refused;
// any other exception, and whatever the sanitizers see, is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "curvq/core/error.h"

namespace curvq::fuzzing {

// Calls `fn`; true if it did not refuse its input.
template <typename Function>
bool accepts(const Function& fn) {
  try {
    fn();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A property that does not hold is a finding.
inline void require(bool condition) {
  if (!condition) std::abort();
}

// A file in memory, under any number of names.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", 0)) { require(fd_ >= 0); }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void set(const void* data, size_t size) {
    require(::ftruncate(fd_, 0) == 0);
    require(::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
  }
  void set(const std::string& content) { set(content.data(), content.size()); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A directory that lasts as long as the process.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "curvq-fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_; }
  // Makes `name` here lead to `file`.
  std::string link(const std::string& name, const MemoryFile& file) const {
    std::filesystem::create_symlink(file.path(), path_ / name);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace curvq::fuzzing
