// What nvcc compiles and what g++ compiles meet here: C++17, no headers of ours.
#pragma once

#include <cstdint>
#include <string>

namespace curvq::cuda {

enum Element { kE2M1, kE4M3, kInt };

// Device pointers of a packed weight; see QuantizedMatrix.
struct PackedView {
  const uint8_t* codes;
  const float* scales;
  const int8_t* zero_points;  // null when symmetric
  int64_t rows, cols, row_bytes, groups, group_size;
  Element element;
  int bits;
};

// All return an empty string or what went wrong.
std::string device_status();  // empty: usable
int multiprocessors();        // of the current device
std::string fill_zero(void* device, int64_t bytes);
std::string allocate(void** pointer, int64_t bytes);
void release(void* pointer);
std::string copy_to_device(void* device, const void* host, int64_t bytes);
std::string copy_to_host(void* host, const void* device, int64_t bytes);
// x [m, cols], out [m, rows], device pointers; waits for the kernel.
std::string gemm(const PackedView& weight, const float* x, int64_t m, float* out);

}  // namespace curvq::cuda
