#include "compress/saliency_mask.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace curvq::internal {

std::vector<int64_t> smallest(const std::vector<float>& values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    return values[a] != values[b] ? values[a] < values[b] : a < b;
  });
  order.resize(count);
  return order;
}

std::vector<uint8_t> mask_of_largest(const std::vector<float>& saliencies, int64_t rows,
                                     int64_t cols, const SparsityPattern& pattern,
                                     bool within_rows) {
  const int64_t all = rows * cols;
  const int64_t size = pattern.structured() ? pattern.group : within_rows ? cols : all;
  std::vector<uint8_t> mask(all, 1);
  int64_t gone = 0;
  for (int64_t begin = 0; begin < all; begin += size) {
    // So many may go up to here that rounding does not add up over the rows.
    const int64_t wanted = std::llround(pattern.share() * static_cast<double>(begin + size));
    const std::vector<float> part(saliencies.begin() + begin, saliencies.begin() + begin + size);
    for (const int64_t i : smallest(part, wanted - gone)) mask[begin + i] = 0;
    gone = wanted;
  }
  return mask;
}

}  // namespace curvq::internal
