// What the W4A16 CUDA kernels could reach on GPUs that are not here: bounds from their machine code
// and from data sheets, no measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/formats/scheme.h"
#include "curvq/kernels/w4a16.h"

namespace curvq {

// Seconds that each resource needs at least for one product x [m, k] W^T [k, n]; the largest is
// the bound, and no kernel reaches all of it.
struct GpuRoofline {
  std::string gpu;
  std::string architecture;  // whose machine code runs: 80, 90a, 100f, 120f
  int tokens = 0;            // of a tile
  int registers = 0;         // a thread
  int blocks = 0;            // of 128 threads that a multiprocessor holds
  double dram = 0;           // weight, x and out once, at the data sheet's rate
  double tensor = 0;         // padded tiles, at the data sheet's dense 16-bit rate
  double issue = 0;          // one instruction a clock and scheduler
  double integer = 0;        // integer instructions at half of that
  double bound = 0;
  std::string bound_by;  // dram, tensor, issue, integer
  // The same product with 16-bit weights, the larger of dram and tensor, over `bound`.
  double speedup = 0;
};

// One a GPU: A100, H200, B200, RTX 5090. Throws UnsupportedError where W4A16 has no kernel for
// `scheme`, UsageError unless the sizes are positive.
std::vector<GpuRoofline> w4a16_rooflines(const Scheme& scheme, Float16Type type, int64_t m,
                                         int64_t n, int64_t k);

}  // namespace curvq
