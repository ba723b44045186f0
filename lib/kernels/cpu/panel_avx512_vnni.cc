#if defined(__x86_64__)
#include "kernels/cpu/panel_avx512_vectors.h"
#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

struct Avx512Vnni : Avx512Vectors {
  using Dot = I;
  static Dot begin_dot(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
  static void dot(Dot& sum, I u, I s) { sum = _mm512_dpbusd_epi32(sum, u, s); }
  static I peak_dot(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
  static I end_dot(Dot dot, I) { return dot; }
};

}  // namespace

const PanelPath panel_path_avx512_vnni = panel_path_of<Avx512Vnni>();

}  // namespace curvq::internal
#endif
