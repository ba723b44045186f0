// Device memory that frees itself, and errors of the runtime as exceptions.
#pragma once

#include <cstdint>
#include <string>

#include "curvq/core/error.h"
#include "kernels/cuda/launch.h"

namespace curvq::cuda {

inline void check(const std::string& problem, const char* what) {
  if (!problem.empty()) throw ResourceError(std::string("cuda: ") + what + " failed: " + problem);
}

class Buffer {
 public:
  explicit Buffer(int64_t bytes) { check(allocate(&pointer_, bytes), "allocating device memory"); }
  Buffer(const void* host, int64_t bytes) : Buffer(bytes) {
    check(copy_to_device(pointer_, host, bytes), "copying to the device");
  }
  ~Buffer() { release(pointer_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return pointer_; }

 private:
  void* pointer_ = nullptr;
};

}  // namespace curvq::cuda
