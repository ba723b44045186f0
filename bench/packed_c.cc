// Products with packed weights behind a C interface, for scripts that time several libraries: codes
// and scales as bytes in, float32 out. Formats: 0 NVFP4, 1 INT4 in groups of 128 with float16
// scales, 2 MXFP4. Paths: 0 inputs of 8 bits, 1 float32, 2 inputs of 15 bits. Functions that fail
// print why and return null or leave the output alone.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/dtype.h"
#include "curvq/formats/minifloat.h"
#include "curvq/kernels/linear.h"

namespace {

struct Weight {
  curvq::QuantizedMatrix matrix;
  curvq::PrepackedWeight prepacked;
};

curvq::Scheme scheme_of(int format) {
  if (format == 0) return curvq::Scheme::nvfp4();
  if (format == 2) return curvq::Scheme::mxfp4();
  curvq::Scheme scheme = curvq::Scheme::int4(128);
  scheme.scale_dtype = curvq::DType::kF16;
  return scheme;
}

// codes [n, k], one a byte; scales [n, k / group] as stored.
curvq::QuantizedMatrix matrix_of(int format, int n, int k, const uint8_t* codes,
                                 const uint8_t* scales, float tensor_scale) {
  curvq::ScaleGrid grid;
  grid.scheme = scheme_of(format);
  grid.rows = n, grid.cols = k, grid.groups = grid.scheme.num_groups(k);
  if (format == 0) grid.global_divisor = 1 / tensor_scale;
  const int64_t count = grid.rows * grid.groups;
  grid.scales.resize(count);
  if (format != 1) grid.scale_codes.assign(scales, scales + count);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    if (format == 1) std::memcpy(&half, scales + 2 * i, 2);
    grid.scales[i] = format == 0   ? curvq::e4m3_to_f32(scales[i]) / grid.global_divisor
                     : format == 1 ? curvq::f16_to_f32(half)
                                   : curvq::e8m0_to_f32(scales[i]);
  }
  curvq::QuantizedMatrix matrix(std::move(grid));
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) matrix.set_code(r, c, codes[r * k + c]);
  }
  return matrix;
}

}  // namespace

extern "C" {

void pk_threads(int threads) { curvq::set_num_threads(threads); }

void* pk_pack(int format, int n, int k, const uint8_t* codes, const uint8_t* scales,
              float tensor_scale) try {
  curvq::QuantizedMatrix matrix = matrix_of(format, n, k, codes, scales, tensor_scale);
  curvq::PrepackedWeight prepacked(matrix);
  return new Weight{std::move(matrix), std::move(prepacked)};
} catch (const curvq::Error& error) {
  std::fprintf(stderr, "pk_pack: %s\n", error.what());
  return nullptr;
}

void* pk_clone(const void* weight) {  // in memory of its own
  const auto* from = static_cast<const Weight*>(weight);
  return new Weight{from->matrix, curvq::PrepackedWeight(from->matrix)};
}

void pk_free(void* weight) { delete static_cast<Weight*>(weight); }

size_t pk_bytes(const void* weight) {
  return static_cast<size_t>(static_cast<const Weight*>(weight)->prepacked.memory_bytes());
}

// x [m, k], out [m, n].
void pk_run(const void* weight, int path, const float* x, int m, float* out) try {
  const curvq::PrepackedWeight& w = static_cast<const Weight*>(weight)->prepacked;
  const auto rounding = path == 1   ? curvq::InputRounding::kNone
                        : path == 2 ? curvq::InputRounding::kA15
                        : path == 3 ? curvq::InputRounding::kBF16
                                    : curvq::InputRounding::kA8;
  curvq::linear(w, curvq::LinearInput(w, x, m, w.cols(), rounding), out, w.rows());
} catch (const curvq::Error& error) {
  std::fprintf(stderr, "pk_run: %s\n", error.what());
}

}  // extern "C"
