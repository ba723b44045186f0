#if defined(__x86_64__)
#include "kernels/cpu/panel_avx2_vectors.h"
#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

// Sums of even and odd pairs of columns in 16 bits.
struct Avx2 : Avx2Vectors {
  using Dot = I;
  static Dot begin_dot(I, I u, I s) { return _mm256_maddubs_epi16(u, s); }
  // Spelt out: compilers gather all products of a step before its sums, and run out of registers.
  [[gnu::always_inline]] static void dot(Dot& sum, I u, I s) {
    I product;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(u), "x"(s));
  }
  static I peak_dot(I sum, I u, I s) {
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
  }
  static I end_dot(Dot dot, I sum) {
    return _mm256_add_epi32(_mm256_madd_epi16(dot, _mm256_set1_epi16(1)), sum);
  }
};

}  // namespace

const PanelPath panel_path_avx2 = panel_path_of<Avx2>();

}  // namespace curvq::internal
#endif
