#if defined(__x86_64__)
#include "kernels/cpu/panel_avx2_vectors.h"
#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

struct AvxVnni : Avx2Vectors {
  using Dot = I;
  static Dot begin_dot(I sum, I u, I s) { return _mm256_dpbusd_avx_epi32(sum, u, s); }
  static void dot(Dot& sum, I u, I s) { sum = _mm256_dpbusd_avx_epi32(sum, u, s); }
  static I peak_dot(I sum, I u, I s) { return _mm256_dpbusd_avx_epi32(sum, u, s); }
  static I end_dot(Dot dot, I) { return dot; }
};

}  // namespace

const PanelPath panel_path_avx_vnni = panel_path_of<AvxVnni>();

}  // namespace curvq::internal
#endif
