// Memory for emulated kernels: starts on 256 bytes, as cudaMalloc's does, and the emulator knows
// its end.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace curvq {

template <typename T>
class DeviceLike {
 public:
  DeviceLike(const T* values, size_t count) : DeviceLike(count) {
    std::copy_n(values, count, data_.get());
  }
  explicit DeviceLike(const std::vector<T>& values) : DeviceLike(values.data(), values.size()) {}
  explicit DeviceLike(size_t count, T value = T{})
      : count_(count),
        data_(static_cast<T*>(std::aligned_alloc(256, (count * sizeof(T) / 256 + 1) * 256))) {
    std::fill_n(data_.get(), count, value);
  }
  T* data() { return data_.get(); }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  size_t count_;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace curvq
