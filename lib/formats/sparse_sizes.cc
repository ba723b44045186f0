#include "curvq/formats/sparse_sizes.h"

namespace curvq {

SparseSizes sparse_sizes(int64_t rows, int64_t cols, int64_t nonzeros, int64_t bits,
                         bool two_four) {
  const auto bytes = [](int64_t count_of_bits) { return (count_of_bits + 7) / 8; };
  const int64_t index_bits = cols <= 65536 ? 16 : 32;
  const int64_t offsets = 4 * (rows + 1), mask = rows * bytes(cols), count = rows * cols;
  SparseSizes out;
  out.dense = bytes(count * bits);
  out.csr = bytes(nonzeros * bits) + bytes(nonzeros * index_bits) + offsets;
  out.bitmask = bytes(nonzeros * bits) + mask;
  out.two_four = two_four ? bytes(count / 2 * bits) + bytes(count / 2 * 2) : -1;
  // density count (bits + index_bits) / 8 + offsets = count bits / 8, and so on
  const double whole = static_cast<double>(count) * static_cast<double>(bits);
  out.csr_density = (whole - 8.0 * static_cast<double>(offsets)) /
                    (static_cast<double>(count) * static_cast<double>(bits + index_bits));
  out.bitmask_density = (whole - 8.0 * static_cast<double>(mask)) / whole;
  return out;
}

}  // namespace curvq
