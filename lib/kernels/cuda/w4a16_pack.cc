#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/formats/minifloat.h"
#include "kernels/cuda/w4a16_format.h"
#include "kernels/cuda/w4a16_unpack.h"

namespace curvq {
namespace {

using cuda::W4Format;

// Where the bits of 16 codes go in two words: places[code][bit], code = 8 word + 2 pair + half.
using Places = std::array<std::array<int, 4>, 16>;

// Asks unpack() where each bit of the words comes out.
template <W4Format kFormat, bool kF16>
Places find_places() {
  constexpr bool kInteger = kFormat == W4Format::kInt4Group32;
  constexpr int kBits[2][4] = {{6, 7, 8, 15}, {9, 10, 11, 15}};
  Places places{};
  uint32_t zero[2][4];
  cuda::unpack<kFormat, kF16>(0, 0, zero);
  for (int at = 0; at < 64; ++at) {
    const uint64_t words = uint64_t{1} << at;
    uint32_t out[2][4];
    cuda::unpack<kFormat, kF16>(static_cast<uint32_t>(words), static_cast<uint32_t>(words >> 32),
                                out);
    for (int value = 0; value < 8; ++value) {
      const uint32_t changed = out[value / 4][value % 4] ^ zero[value / 4][value % 4];
      if (changed == 0) continue;
      const int bit = std::countr_zero(changed);
      const int* bits = kBits[kF16];
      const int index =
          kInteger ? bit % 16 : static_cast<int>(std::find(bits, bits + 4, bit % 16) - bits);
      places[2 * value + bit / 16][index] = at;
    }
  }
  return places;
}

const Places& places_of(W4Format format, Float16Type type) {
  static const Places fp4[2] = {find_places<W4Format::kNvfp4, false>(),
                                find_places<W4Format::kNvfp4, true>()};
  static const Places integer = find_places<W4Format::kInt4Group32, false>();
  const bool is_float = format == W4Format::kNvfp4 || format == W4Format::kMxfp4;
  return is_float ? fp4[type == Float16Type::kFloat16] : integer;
}

// Calls visit(row of the block, column of the chunk, bit of the chunk's codes for each of 4 bits).
template <typename Visit>
void for_each_code(W4Format format, Float16Type type, const Visit& visit) {
  const Places& places = places_of(format, type);
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 2; ++i)
        for (int code = 0; code < 16; ++code) {
          const int step = 2 * half + code / 8, pair = code / 2 % 4;
          const int row = 16 * i + lane / 4 + 8 * (pair % 2);
          const int column = cuda::first_column(format, lane % 4, step) + 2 * (pair / 2) + code % 2;
          const int first_bit = ((half * 32 + lane) * 4 + 2 * i) * 32;
          visit(row, column, first_bit, places[code]);
        }
}

// Row of the source and which matrix, of a packed row.
struct Source {
  int matrix;
  int64_t row;
};
Source source_of(bool pair, int64_t packed_row) {
  if (!pair) return {0, packed_row};
  return {static_cast<int>(packed_row / 8 % 2), packed_row / 16 * 8 + packed_row % 8};
}

// Where the scale of slot `slot` of lanes 4 g + t, columns 16 piece ..., lies in a meta block.
int scale_index(W4Format format, int g, int slot, int group) {
  switch (format) {
    case W4Format::kNvfp4:
      return (4 * g + group) * 4 + slot;
    case W4Format::kMxfp4:
    case W4Format::kInt4Group32:
      return (2 * g + group) * 4 + slot;
    case W4Format::kInt4Group64:
      return 4 * g + slot;
  }
  return 0;
}

int groups_per_meta(W4Format format) {
  return format == W4Format::kNvfp4 ? 4 : format == W4Format::kInt4Group64 ? 1 : 2;
}

// A non-negative E4M3 value as exponent + 22 and 3 bits; 0 for zero.
uint8_t e4m3_to_e5m3(uint8_t code) {
  if (code == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(e4m3_to_f32(code), &exponent);  // in [0.5, 1)
  return static_cast<uint8_t>((exponent - 1 + cuda::kE5M3Bias) << 3 |
                              static_cast<int>(mantissa * 16 - 8));
}
uint8_t e5m3_to_e4m3(uint8_t code) {
  if (code == 0) return 0;
  return f32_to_e4m3(
      std::ldexp(1.0f + static_cast<float>(code & 7) / 8, (code >> 3) - cuda::kE5M3Bias));
}

bool has_nonzero_code(const QuantizedMatrix& w, int64_t row, int64_t group) {
  const int64_t size = w.scheme().group_size;
  for (int64_t c = group * size; c < (group + 1) * size; ++c)
    if ((w.code(row, c) & 7) != 0) return true;
  return false;
}

void check_scales(const QuantizedMatrix& w) {
  const ScaleGrid& grid = w.grid;
  const Scheme& scheme = grid.scheme;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t g = 0; g < grid.groups; ++g) {
      const auto fail = [&](const std::string& what) {
        throw UnsupportedError("w4a16: the scale of row " + std::to_string(row) + ", group " +
                               std::to_string(g) + " is " + what +
                               "; curvq verify names such groups, quantize the weight again");
      };
      if (scheme.scale_type == ScaleType::kFloat) {
        if (!std::isfinite(grid.scale(row, g))) fail("not finite");
        continue;
      }
      const uint8_t code = grid.scale_codes[row * grid.groups + g];
      if (scheme.scale_type == ScaleType::kE8M0) {
        if (code == 0xff) fail("NaN");
      } else if ((code & 0x7f) == 0x7f) {
        fail("NaN");
      } else if (code & 0x80) {
        fail("negative");
      } else if (code == 0 && has_nonzero_code(w, row, g)) {
        fail("zero for codes that are not");
      }
    }
  }
}

// Exponents move up so that the largest scale gives products near one in the kernel's arithmetic.
int mx_bias(const QuantizedMatrix* const* matrices, int count, Float16Type type) {
  int least = 255, most = 0;
  for (int i = 0; i < count; ++i)
    for (const uint8_t code : matrices[i]->grid.scale_codes) {
      least = std::min<int>(least, code);
      most = std::max<int>(most, code);
    }
  const bool on_weights = type == Float16Type::kBFloat16;
  const int bias = on_weights ? 254 - most : std::min(214 - most, 120);
  const int smallest = on_weights ? 121 : 1;
  if (least + bias < smallest)
    throw UnsupportedError("w4a16: mxfp4 scales reach from 2^" + std::to_string(least - 127) +
                           " to 2^" + std::to_string(most - 127) + ", too far for " +
                           (on_weights ? "bfloat16" : "float16") +
                           " products; use the kernel with float32 activations");
  return bias;
}

void pack_meta(const QuantizedMatrix& w, int64_t row, int64_t first_group, int g, int slot,
               W4Format format, int bias, uint8_t* meta) {
  const ScaleGrid& grid = w.grid;
  for (int i = 0; i < groups_per_meta(format); ++i) {
    const int at = scale_index(format, g, slot, i);
    const bool inside = row < grid.rows && first_group + i < grid.groups;
    const int64_t group = row * grid.groups + first_group + i;
    if (format == W4Format::kNvfp4) {
      meta[at] = inside ? e4m3_to_e5m3(grid.scale_codes[group]) : 0;
    } else if (format == W4Format::kMxfp4) {
      meta[at] = static_cast<uint8_t>(inside ? grid.scale_codes[group] + bias : 127);
    } else {
      const float scale = inside ? grid.scales[group] : 0.0f;
      std::memcpy(meta + 4 * at, &scale, 4);
      if (!grid.zero_points.empty())
        meta[cuda::scale_bytes(format) + at] =
            static_cast<uint8_t>(inside ? grid.zero_points[group] + 8 : 8);
    }
  }
}

W4A16Weight pack(const QuantizedMatrix* const (&matrices)[2], int count, Float16Type type) {
  const QuantizedMatrix& first = *matrices[0];
  W4A16Weight packed;
  packed.scheme = first.scheme();
  packed.type = type;
  packed.pair = count == 2;
  packed.rows = first.rows();
  packed.cols = first.cols();
  const W4Format format = internal::w4_format(packed.scheme);
  for (int i = 0; i < count; ++i) check_scales(*matrices[i]);
  const bool f16 = type == Float16Type::kFloat16;
  if (format == W4Format::kMxfp4) packed.scale_bias = mx_bias(matrices, count, type);
  for (int i = 0; i < count; ++i) {
    packed.divisors[i] = matrices[i]->grid.global_divisor;
    if (format == W4Format::kNvfp4) packed.alpha[i] = 1 / cuda::kNvfp4Unit / packed.divisors[i];
    if (format == W4Format::kMxfp4)
      packed.alpha[i] = std::ldexp(1.0f, (f16 ? 14 : 126) - packed.scale_bias);
  }
  const int64_t rows = packed.pair ? (packed.rows + 7) / 8 * 16 : packed.rows;
  packed.row_blocks = (rows + cuda::kChunkRows - 1) / cuda::kChunkRows;
  packed.chunks = (packed.cols + 2 * cuda::kChunkCols - 1) / (2 * cuda::kChunkCols) * 2;
  const int64_t size = packed.scheme.group_size;
  if (format == W4Format::kInt4Group64)
    packed.group_shift = size == 0 ? 30 : std::countr_zero(static_cast<uint64_t>(size / 64));
  packed.groups = ((packed.chunks - 1) >> packed.group_shift) + 1;

  const int meta_bytes = cuda::meta_bytes(format, !packed.scheme.symmetric);
  packed.codes.resize(packed.row_blocks * packed.chunks * cuda::kChunkBytes);
  packed.meta.resize(packed.row_blocks * packed.groups * meta_bytes);
  for (int64_t block = 0; block < packed.row_blocks; ++block) {
    for (int64_t chunk = 0; chunk < packed.chunks; ++chunk) {
      uint8_t* codes = packed.codes.data() + (block * packed.chunks + chunk) * cuda::kChunkBytes;
      for_each_code(format, type, [&](int row, int column, int first_bit, const auto& places) {
        const Source source = source_of(packed.pair, block * cuda::kChunkRows + row);
        const int64_t c = chunk * cuda::kChunkCols + column;
        if (source.row >= packed.rows || c >= packed.cols) return;
        const uint8_t code = matrices[source.matrix]->code(source.row, c);
        for (int bit = 0; bit < 4; ++bit) {
          const int at = first_bit + places[bit];
          codes[at / 8] = static_cast<uint8_t>(codes[at / 8] | (code >> bit & 1) << (at % 8));
        }
      });
    }
    for (int64_t group = 0; group < packed.groups; ++group) {
      uint8_t* meta = packed.meta.data() + (block * packed.groups + group) * meta_bytes;
      for (int row = 0; row < cuda::kChunkRows; ++row) {
        const Source source = source_of(packed.pair, block * cuda::kChunkRows + row);
        pack_meta(*matrices[source.matrix], source.row, group * groups_per_meta(format), row % 8,
                  row / 8, format, packed.scale_bias, meta);
      }
    }
  }
  return packed;
}

}  // namespace

W4A16Weight pack_w4a16(const QuantizedMatrix& weight, Float16Type type) {
  return pack({&weight, nullptr}, 1, type);
}

W4A16Weight pack_w4a16_pair(const QuantizedMatrix& gate, const QuantizedMatrix& up,
                            Float16Type type) {
  if (gate.rows() != up.rows() || gate.cols() != up.cols() || !(gate.scheme() == up.scheme()))
    throw UsageError("w4a16: gate is [" + std::to_string(gate.rows()) + ", " +
                     std::to_string(gate.cols()) + "] " + gate.scheme().describe() + ", up [" +
                     std::to_string(up.rows()) + ", " + std::to_string(up.cols()) + "] " +
                     up.scheme().describe() + "; a pair has one shape and scheme");
  return pack({&gate, &up}, 2, type);
}

QuantizedMatrix unpack_w4a16(const W4A16Weight& packed, int matrix) {
  const W4Format format = internal::w4_format(packed.scheme);
  ScaleGrid grid;
  grid.scheme = packed.scheme;
  grid.rows = packed.rows;
  grid.cols = packed.cols;
  grid.groups = packed.scheme.num_groups(packed.cols);
  grid.global_divisor = packed.divisors[matrix];
  const bool is_float = packed.scheme.scale_type == ScaleType::kFloat;
  grid.scales.resize(grid.rows * grid.groups);
  if (!is_float) grid.scale_codes.resize(grid.rows * grid.groups);
  if (!packed.scheme.symmetric) grid.zero_points.resize(grid.rows * grid.groups);
  QuantizedMatrix result(std::move(grid));
  const int meta_bytes = cuda::meta_bytes(format, !packed.scheme.symmetric);
  for (int64_t block = 0; block < packed.row_blocks; ++block) {
    for (int64_t chunk = 0; chunk < packed.chunks; ++chunk) {
      const uint8_t* codes =
          packed.codes.data() + (block * packed.chunks + chunk) * cuda::kChunkBytes;
      for_each_code(format, packed.type,
                    [&](int row, int column, int first_bit, const auto& places) {
                      const Source source = source_of(packed.pair, block * cuda::kChunkRows + row);
                      const int64_t c = chunk * cuda::kChunkCols + column;
                      if (source.matrix != matrix || source.row >= packed.rows || c >= packed.cols)
                        return;
                      int code = 0;
                      for (int bit = 0; bit < 4; ++bit) {
                        const int at = first_bit + places[bit];
                        code |= (codes[at / 8] >> (at % 8) & 1) << bit;
                      }
                      result.set_code(source.row, c, static_cast<uint8_t>(code));
                    });
    }
    for (int64_t meta_group = 0; meta_group < packed.groups; ++meta_group) {
      const uint8_t* meta = packed.meta.data() + (block * packed.groups + meta_group) * meta_bytes;
      for (int row = 0; row < cuda::kChunkRows; ++row) {
        const Source source = source_of(packed.pair, block * cuda::kChunkRows + row);
        if (source.matrix != matrix || source.row >= packed.rows) continue;
        for (int i = 0; i < groups_per_meta(format); ++i) {
          const int64_t g = meta_group * groups_per_meta(format) + i;
          if (g >= result.grid.groups) continue;
          const int at = scale_index(format, row % 8, row / 8, i);
          const int64_t to = source.row * result.grid.groups + g;
          float& scale = result.grid.scales[to];
          if (format == W4Format::kNvfp4) {
            result.grid.scale_codes[to] = e5m3_to_e4m3(meta[at]);
            scale = e4m3_to_f32(result.grid.scale_codes[to]) / result.grid.global_divisor;
          } else if (format == W4Format::kMxfp4) {
            result.grid.scale_codes[to] = static_cast<uint8_t>(meta[at] - packed.scale_bias);
            scale = e8m0_to_f32(result.grid.scale_codes[to]);
          } else {
            std::memcpy(&scale, meta + 4 * at, 4);
            if (!packed.scheme.symmetric)
              result.grid.zero_points[to] =
                  static_cast<int8_t>(meta[cuda::scale_bytes(format) + at] - 8);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace curvq
