#include "kernels/cuda/product_sizes.h"

#include <limits>
#include <string>

#include "curvq/core/error.h"

namespace curvq::internal {

void check_product_sizes(const char* kernel, int64_t m, int64_t most, int64_t ldx, int64_t ldout,
                         int64_t rows, int64_t cols) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto fail = [kernel](const std::string& what) {
    throw UsageError(std::string(kernel) + ": " + what);
  };
  if (m < 0 || m > most) fail("m is " + std::to_string(m));
  if (ldx < cols || ldx > kMost || ldx % 8 != 0)
    fail("ldx is " + std::to_string(ldx) + "; it must be at least " + std::to_string(cols) +
         " and a multiple of 8, so that rows of x start on 16 bytes");
  if (ldout < rows || ldout > kMost)
    fail("ldout is " + std::to_string(ldout) + "; rows of out have " + std::to_string(rows) +
         " elements");
}

}  // namespace curvq::internal
