#include "kernels/cuda/w4a16_format.h"

#include <bit>

#include "curvq/core/error.h"

namespace curvq {
namespace internal {

using cuda::W4Format;

W4Format w4_format(const Scheme& scheme) {
  if (scheme.bits == 4 && scheme.element == ElementType::kE2M1) {
    if (scheme.scale_type == ScaleType::kE4M3 && scheme.group_size == 16) return W4Format::kNvfp4;
    if (scheme.scale_type == ScaleType::kE8M0 && scheme.group_size == 32) return W4Format::kMxfp4;
  }
  if (scheme.bits == 4 && scheme.element == ElementType::kInt) {
    if (scheme.group_size == 32) return W4Format::kInt4Group32;
    const uint64_t chunks = static_cast<uint64_t>(scheme.group_size) / 64;
    if (scheme.group_size == 0 || (scheme.group_size % 64 == 0 && std::has_single_bit(chunks)))
      return W4Format::kInt4Group64;
  }
  throw UnsupportedError("w4a16: no kernel for " + scheme.describe() +
                         "; there are nvfp4, mxfp4, int4 with groups of 32, 64, 128, ..., a row");
}

}  // namespace internal

}  // namespace curvq
