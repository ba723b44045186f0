#if defined(__x86_64__)
#include "kernels/cpu/panel_avx512_vectors.h"
#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

// Sums of even and odd pairs of columns in 16 bits.
struct Avx512 : Avx512Vectors {
  using Dot = I;
  static Dot begin_dot(I, I u, I s) { return _mm512_maddubs_epi16(u, s); }
  static void dot(Dot& sum, I u, I s) { sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(u, s)); }
  static I peak_dot(I sum, I u, I s) {
    return _mm512_add_epi32(sum,
                            _mm512_madd_epi16(_mm512_maddubs_epi16(u, s), _mm512_set1_epi16(1)));
  }
  static I end_dot(Dot dot, I sum) {
    return _mm512_add_epi32(_mm512_madd_epi16(dot, _mm512_set1_epi16(1)), sum);
  }
};

}  // namespace

const PanelPath panel_path_avx512 = panel_path_of<Avx512>();

}  // namespace curvq::internal
#endif
