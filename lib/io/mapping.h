// Files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace curvq::io {

// A whole regular file, mapped read-only. Not copyable; the mapping ends with the object.
class Mapping {
 public:
  // `kind` ("safetensors") is for messages. Throws ResourceError if the file cannot be opened or
  // mapped, FormatError if it is empty or not a regular file.
  Mapping(const std::string& path, const char* kind);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Tells the kernel that these pages of a mapped file are not needed for now; they come back when
// read.
void release_pages(const std::byte* data, int64_t bytes);

}  // namespace curvq::io
