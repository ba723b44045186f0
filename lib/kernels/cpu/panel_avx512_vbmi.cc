#if defined(__x86_64__)
#include "kernels/cpu/panel_avx512_vectors.h"
#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

struct Avx512Vbmi : Avx512Vectors {
  using Dot = I;
  static Dot begin_dot(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
  static void dot(Dot& sum, I u, I s) { sum = _mm512_dpbusd_epi32(sum, u, s); }
  static I peak_dot(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
  // Looks 64 bytes up; the table holds 16 four times, so that the upper bits of a code do not
  // matter.
  static I lookup_low(I table, I codes) {
    return _mm512_maskz_permutexvar_epi8(~0ull, codes, table);
  }
  static I lookup_high(I table, I codes) { return lookup_low(table, _mm512_srli_epi16(codes, 4)); }
  static I end_dot(Dot dot, I) { return dot; }
};

}  // namespace

const PanelPath panel_path_avx512_vbmi = panel_path_of<Avx512Vbmi>();

}  // namespace curvq::internal
#endif
