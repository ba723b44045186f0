#include "kernels/gemm_path.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq::internal {
namespace {

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

// Asked once: on virtual machines the instruction takes as long as a small product.
bool has_avx_vnni() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kAvxVnni = 1u << 4;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
  }();
  return has;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512_vbmi() { return has_avx512_vnni() && __builtin_cpu_supports("avx512vbmi"); }

// Linux gives the tiles' registers to processes that ask for them.
bool has_amx() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kAmxBF16 = 1u << 22, kAmxTile = 1u << 24, kAvx512BF16 = 1u << 5;
    if (!has_avx512_vbmi() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & kAmxBF16) == 0 || (d & kAmxTile) == 0) return false;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512BF16) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}
#endif

// Best last.
const std::array kPaths = {
    GemmPath{"scalar", int16_tile_scalar, int8_tile_scalar, &panel_path_scalar, nullptr,
             attention_step_scalar, double_tile_scalar, always},
#if defined(__x86_64__)
    GemmPath{"avx2", int16_tile_avx2, int8_tile_avx2, &panel_path_avx2, nullptr,
             attention_step_avx2, double_tile_avx2, has_avx2},
    GemmPath{"avx_vnni", int16_tile_avx2, int8_tile_avx2, &panel_path_avx_vnni, nullptr,
             attention_step_avx2, double_tile_avx2, has_avx_vnni},
    GemmPath{"avx512", int16_tile_avx512, int8_tile_avx2, &panel_path_avx512, nullptr,
             attention_step_avx512, double_tile_avx512, has_avx512},
    GemmPath{"avx512_vnni", int16_tile_avx512_vnni, int8_tile_avx512_vnni, &panel_path_avx512_vnni,
             nullptr, attention_step_avx512, double_tile_avx512, has_avx512_vnni},
    GemmPath{"avx512_vbmi", int16_tile_avx512_vnni, int8_tile_avx512_vnni, &panel_path_avx512_vbmi,
             nullptr, attention_step_avx512, double_tile_avx512, has_avx512_vbmi},
    GemmPath{"amx", int16_tile_avx512_vnni, int8_tile_avx512_vnni, &panel_path_avx512_vbmi,
             &matrix_unit_amx, attention_step_avx512, double_tile_avx512, has_amx},
#endif
};

}  // namespace

const GemmPath& select_gemm_path() {
  const char* forced = std::getenv("CURVQ_CPU");
  const GemmPath* best = nullptr;
  std::string possible;
  for (const GemmPath& path : kPaths) {
    if (!path.supported()) continue;
    if (forced != nullptr && forced == std::string_view(path.name)) return path;
    best = &path;
    possible += (possible.empty() ? "" : ", ") + std::string(path.name);
  }
  if (forced == nullptr || *forced == '\0') return *best;
  throw UsageError("CURVQ_CPU=" + std::string(forced) +
                   " is not possible on this machine; possible: " + possible);
}

DoubleTile* select_double_tile() { return select_gemm_path().double_tile; }

void check_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                const void* out, int64_t ldout) {
  const int64_t n = weight.rows(), k = weight.cols();
  if (m < 0) throw UsageError(format("packed_gemm: m is %ld; it cannot be negative", long{m}));
  if (ldx < k || ldout < n) {
    throw UsageError(
        format("packed_gemm: row strides ldx %ld and ldout %ld; at least k = %ld and n = %ld",
               long{ldx}, long{ldout}, long{k}, long{n}));
  }
  if ((x == nullptr && m * k > 0) || (out == nullptr && m * n > 0)) {
    throw UsageError(std::string("packed_gemm: ") + (x == nullptr ? "x" : "out") +
                     " is a null pointer");
  }
}

}  // namespace curvq::internal
