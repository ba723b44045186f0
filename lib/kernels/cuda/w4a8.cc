#include "kernels/cuda/w4a8.h"

#include <cmath>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/formats/minifloat.h"
#include "kernels/cuda/product_sizes.h"

namespace curvq {
namespace internal {

W4A8Launch plan_w4a8(const W4A8Weight& weight, int64_t m, int64_t ldx, int64_t ldout) {
  constexpr int64_t kMost = 1 << 20;  // rows of x that blocks of a grid can be for
  check_product_sizes("w4a8", m, kMost, ldx, ldout, weight.rows, weight.cols);
  const auto tiles = [](int64_t rows, int64_t tile) {
    return static_cast<int>((rows + tile - 1) / tile);
  };
  W4A8Launch launch{};
  launch.quantize.m = static_cast<int>(m);
  launch.quantize.k = static_cast<int>(weight.cols);
  launch.quantize.ldx = static_cast<int>(ldx);
  launch.quantize.chunks = static_cast<int>(weight.chunks);
  cuda::W4A8Args& args = launch.product;
  args.m = static_cast<int>(m);
  args.columns = static_cast<int>(weight.rows);
  args.chunks = static_cast<int>(weight.chunks);
  args.ldout = static_cast<int>(ldout);
  args.row_tiles = tiles(weight.rows, cuda::kW4A8Rows);
  args.token_tiles = tiles(m, cuda::kW4A8Tokens);
  args.wide_stores = ldout % 8 == 0;
  return launch;
}

}  // namespace internal

namespace {

// Of a column of a chunk: its word of the row's 16, and its place there (w4a8_layout.h).
struct Place {
  int word, code;
  explicit Place(int64_t column)
      : word(static_cast<int>(column % 16 / 4 * 4 + column / 32)),
        code(static_cast<int>(column % 32 / 16 * 4 + column % 4)) {}
  int magnitude_bit() const { return 4 * code; }
  int sign_bit() const { return code < 4 ? 8 * code + 7 : 8 * (code - 4) + 3; }
};

int64_t row_bytes(const W4A8Weight& packed) { return packed.chunks * cuda::kW4A8CodeBytes; }

int64_t word_offset(const W4A8Weight& packed, int64_t row, int64_t column, const Place& place) {
  return row * row_bytes(packed) + column / cuda::kW4A8Cols * cuda::kW4A8CodeBytes + 4 * place.word;
}

}  // namespace

W4A8Weight pack_w4a8(const QuantizedMatrix& matrix) {
  const Scheme& scheme = matrix.scheme();
  if (scheme.bits != 4 || scheme.element != ElementType::kE2M1 ||
      scheme.scale_type != ScaleType::kE8M0 || scheme.group_size != 32)
    throw UnsupportedError("w4a8: no kernel for " + scheme.describe() + "; there is mxfp4");
  W4A8Weight packed;
  packed.scheme = scheme;
  packed.rows = matrix.rows();
  packed.cols = matrix.cols();
  packed.chunks = (packed.cols + cuda::kW4A8Cols - 1) / cuda::kW4A8Cols;
  packed.codes.resize(packed.rows * row_bytes(packed));
  packed.scales.resize((packed.rows + 127) / 128 * packed.chunks * cuda::kScaleTileBytes);
  const int64_t groups = matrix.grid.groups;
  for (int64_t row = 0; row < packed.rows; ++row) {
    for (int64_t column = 0; column < packed.cols; ++column) {
      const Place place(column % cuda::kW4A8Cols);
      const uint32_t code = matrix.code(row, column);
      uint8_t* at = packed.codes.data() + word_offset(packed, row, column, place);
      uint32_t word;
      std::memcpy(&word, at, 4);
      word |= (code & 7) << place.magnitude_bit() | code >> 3 << place.sign_bit();
      std::memcpy(at, &word, 4);
    }
    for (int64_t group = 0; group < groups; ++group)
      packed.scales[cuda::scale_offset(row, group, packed.chunks)] =
          matrix.grid.scale_codes[row * groups + group];
  }
  return packed;
}

QuantizedMatrix unpack_w4a8(const W4A8Weight& packed) {
  ScaleGrid grid;
  grid.scheme = packed.scheme;
  grid.rows = packed.rows;
  grid.cols = packed.cols;
  grid.groups = packed.scheme.num_groups(packed.cols);
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups; ++group) {
      grid.scale_codes.push_back(packed.scales[cuda::scale_offset(row, group, packed.chunks)]);
      grid.scales.push_back(e8m0_to_f32(grid.scale_codes.back()));
    }
  }
  QuantizedMatrix matrix(std::move(grid));
  for (int64_t row = 0; row < packed.rows; ++row) {
    for (int64_t column = 0; column < packed.cols; ++column) {
      const Place place(column % cuda::kW4A8Cols);
      uint32_t word;
      std::memcpy(&word, packed.codes.data() + word_offset(packed, row, column, place), 4);
      matrix.set_code(row, column,
                      static_cast<uint8_t>((word >> place.magnitude_bit() & 7) |
                                           (word >> place.sign_bit() & 1) << 3));
    }
  }
  return matrix;
}

void w4a8_reference(const W4A8Weight& weight, const W4A8Inputs& x, Float16Type type,
                    const float* bias, double* out, double* bound) {
  if (weight.chunks != x.chunks) throw UsageError("w4a8: x and the weight differ in columns");
  const int64_t n = weight.rows, k = weight.cols;
  std::vector<float> w(n * k);
  dequantize(unpack_w4a8(weight), w.data());
  const bool f16 = type == Float16Type::kFloat16;
  const double rounding = f16 ? 0x1p-11 : 0x1p-8;  // half a unit in the last place
  const double least = f16 ? 0x1p-25 : 0x1p-134;   // half the smallest subnormal
  for (int64_t row = 0; row < x.rows; ++row) {
    const uint8_t* codes = x.codes.data() + row * x.chunks * cuda::kW4A8Cols;
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double product = static_cast<double>(e4m3_to_f32(codes[c])) * w[j * k + c];
        sum += product;
        magnitude += std::abs(product);
      }
      const double scale = static_cast<double>(x.scales[row]);
      const double b = bias == nullptr ? 0 : static_cast<double>(bias[j]);
      const double y = sum * scale + b;
      const double e =
          static_cast<double>(k + 32) * 0x1p-23 * magnitude * scale + std::abs(b) * 0x1p-22;
      out[row * n + j] = y;
      if (bound != nullptr) bound[row * n + j] = e + (std::abs(y) + e) * rounding + least;
    }
  }
}

}  // namespace curvq
