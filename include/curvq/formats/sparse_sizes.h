// What a matrix with zeros takes to store, in the layouts that are in use.
#pragma once

#include <cstdint>

namespace curvq {

// Bytes of the values, the places of the values, and nothing else (scales of quantized values are
// the same in every layout).
struct SparseSizes {
  int64_t dense = 0;    // every value
  int64_t csr = 0;      // values and 16-bit column numbers (32-bit beyond 65536 columns) of what is
                        // not zero, a 32-bit offset a row and one more
  int64_t bitmask = 0;  // values of what is not zero, one bit a weight, rows padded to bytes
  int64_t two_four = 0;  // two values of every four and two bits for the place of each; -1: the
                         // matrix is not 2:4
  // Shares of values that are not zero below which the layout is smaller than the dense one; 0 or
  // less: never.
  double csr_density = 0, bitmask_density = 0;
};

// bits: of one value, 4 for instance. two_four: no four consecutive columns from a multiple of four
// on hold more than two values. rows and cols of 1 or more.
SparseSizes sparse_sizes(int64_t rows, int64_t cols, int64_t nonzeros, int64_t bits, bool two_four);

}  // namespace curvq
