#include "curvq/formats/sparse_sizes.h"

#include <gtest/gtest.h>

namespace curvq {
namespace {

TEST(SparseSizes, CountWhatEachLayoutStores) {
  const SparseSizes bf16 = sparse_sizes(4, 12, 24, 16, true);
  EXPECT_EQ(bf16.dense, 4 * 12 * 2);
  EXPECT_EQ(bf16.csr, 24 * 2 + 24 * 2 + 5 * 4);
  EXPECT_EQ(bf16.bitmask, 24 * 2 + 4 * 2);
  EXPECT_EQ(bf16.two_four, 24 * 2 + 24 / 4);
  const SparseSizes int4 = sparse_sizes(2, 100000, 11, 4, false);
  EXPECT_EQ(int4.dense, 100000);
  EXPECT_EQ(int4.csr, 6 + 11 * 4 + 3 * 4);
  EXPECT_EQ(int4.two_four, -1);
}

// Just below the density a layout is smaller than dense, just above it is not.
TEST(SparseSizes, DensitiesAreWhereLayoutsPay) {
  for (const int64_t bits : {4, 8, 16, 32}) {
    const int64_t rows = 64, cols = 512, count = rows * cols;
    const SparseSizes sizes = sparse_sizes(rows, cols, 0, bits, false);
    const auto at = [&](double density) {
      return sparse_sizes(rows, cols, static_cast<int64_t>(density * count), bits, false);
    };
    EXPECT_LT(at(sizes.csr_density - 0.001).csr, sizes.dense) << bits;
    EXPECT_GT(at(sizes.csr_density + 0.001).csr, sizes.dense) << bits;
    EXPECT_LT(at(sizes.bitmask_density - 0.001).bitmask, sizes.dense) << bits;
    EXPECT_GT(at(sizes.bitmask_density + 0.001).bitmask, sizes.dense) << bits;
  }
  EXPECT_LE(sparse_sizes(8, 1, 0, 4, false).csr_density, 0);  // offsets alone are more
}

}  // namespace
}  // namespace curvq
