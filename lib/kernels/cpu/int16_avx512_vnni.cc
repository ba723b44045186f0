#if defined(__x86_64__)
#include <immintrin.h>

namespace curvq::internal {
namespace {

__m512i multiply_add(__m512i sum, __m512i a, __m512i b) { return _mm512_dpwssd_epi32(sum, a, b); }

}  // namespace
}  // namespace curvq::internal

#include "kernels/cpu/int16_avx512_impl.h"

namespace curvq::internal {

void int16_tile_avx512_vnni(const Int16Panel& panel) { all_rows(panel); }

}  // namespace curvq::internal
#endif
