#include "io/gguf_layers.h"

#include <cmath>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/minifloat.h"
#include "io/gguf_names.h"
#include "io/text.h"

namespace curvq::io {
namespace {

constexpr uint8_t kE4M3One = 0x38;

int64_t group_elements(GgmlType type) { return type == GgmlType::kNVFP4 ? 16 : 32; }

// Elements of a block that share bytes of nibbles: the first half of each run is low.
int64_t nibble_run(GgmlType type) { return type == GgmlType::kNVFP4 ? 16 : 32; }

// Where a block's codes begin.
int64_t code_offset(GgmlType type) {
  return type == GgmlType::kMXFP4 ? 1 : type == GgmlType::kNVFP4 ? 4 : 2;
}

[[noreturn]] void refuse(const std::string& layer, const std::string& why) {
  throw UnsupportedError(layer + ": " + why);
}

uint16_t exact_half(float scale, const std::string& layer, int64_t row, int64_t group) {
  const uint16_t half = f32_to_f16(scale);
  if (f16_to_f32(half) == scale) return half;
  refuse(layer,
         format("its scale %.9g (row %lld, group %lld) is no float16, which blocks of a GGUF "
                "need; quantize the model that convert --dtype float16 makes",
                static_cast<double>(scale), static_cast<long long>(row),
                static_cast<long long>(group)));
}

void pack_block(const QuantizedMatrix& matrix, GgmlType type, int64_t row, int64_t col,
                const std::string& layer, uint8_t* out) {
  const ScaleGrid& grid = matrix.grid;
  const int64_t group = grid.scheme.group_of(col), at = row * grid.groups + group;
  if (type == GgmlType::kMXFP4) {
    out[0] = grid.scale_codes[at];
  } else if (type == GgmlType::kNVFP4) {
    std::memcpy(out, grid.scale_codes.data() + at, 4);
  } else {
    const uint16_t half = exact_half(grid.scales[at], layer, row, group);
    std::memcpy(out, &half, sizeof(half));
  }
  out += code_offset(type);
  if (type == GgmlType::kQ8_0) {
    for (int64_t i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(matrix.code(row, col + i) - 128);
    return;
  }
  const int64_t run = nibble_run(type), elements = ggml_type_info(type).block_elements;
  for (int64_t begin = 0; begin < elements; begin += run) {
    for (int64_t i = 0; i < run / 2; ++i) {
      const uint8_t low = matrix.code(row, col + begin + i);
      const uint8_t high = matrix.code(row, col + begin + run / 2 + i);
      *out++ = static_cast<uint8_t>(low | high << 4);
    }
  }
}

// Codes of one block into columns from `col` on.
void unpack_codes(GgmlType type, const uint8_t* codes, int64_t row, int64_t col,
                  QuantizedMatrix* matrix) {
  if (type == GgmlType::kQ8_0) {
    for (int64_t i = 0; i < 32; ++i)
      matrix->set_code(row, col + i, static_cast<uint8_t>(codes[i] + 128));
    return;
  }
  const int64_t run = nibble_run(type), elements = ggml_type_info(type).block_elements;
  for (int64_t begin = 0; begin < elements; begin += run) {
    for (int64_t i = 0; i < run / 2; ++i, ++codes) {
      matrix->set_code(row, col + begin + i, *codes & 15);
      matrix->set_code(row, col + begin + run / 2 + i, *codes >> 4);
    }
  }
}

// Zero whatever the scale.
void clear_group(int64_t row, int64_t group, QuantizedMatrix* matrix) {
  const Scheme& scheme = matrix->scheme();
  const auto zero =
      static_cast<uint8_t>(scheme.element == ElementType::kInt ? -scheme.min_code() : 0);
  for (int64_t i = 0; i < scheme.group_size; ++i)
    matrix->set_code(row, group * scheme.group_size + i, zero);
}

}  // namespace

GgmlType ggml_type_of(const Scheme& scheme, int64_t cols, const std::string& layer) {
  GgmlType type = GgmlType::kNVFP4;
  if (scheme.element == ElementType::kE4M3) refuse(layer, "a GGUF has no FP8 blocks");
  if (scheme.element == ElementType::kInt) {
    if (!scheme.symmetric)
      refuse(layer, "it has zero points; the blocks of a GGUF with a minimum round it to float16");
    type = scheme.bits == 4 ? GgmlType::kQ4_0 : GgmlType::kQ8_0;
    if (scheme.group_size % 32 != 0)
      refuse(layer, format("groups of %lld are no whole blocks of 32",
                           static_cast<long long>(scheme.group_size)));
  } else if (scheme.scale_type == ScaleType::kE8M0) {
    type = GgmlType::kMXFP4;
  }
  const int64_t block = ggml_type_info(type).block_elements;
  if (cols % block != 0) {
    refuse(layer,
           format("its %lld inputs are no whole blocks of %lld (%s)", static_cast<long long>(cols),
                  static_cast<long long>(block), ggml_type_info(type).name));
  }
  return type;
}

std::vector<std::byte> pack_ggml_blocks(const QuantizedMatrix& matrix, int64_t half_head,
                                        const std::string& layer) {
  const GgmlType type = ggml_type_of(matrix.scheme(), matrix.cols(), layer);
  const GgmlTypeInfo& info = ggml_type_info(type);
  const int64_t blocks = matrix.cols() / info.block_elements;
  std::vector<std::byte> out(static_cast<size_t>(matrix.rows() * blocks * info.block_bytes));
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  parallel_for(0, matrix.rows(), [&](int64_t row) {
    uint8_t* to = bytes + stored_row(row, half_head) * blocks * info.block_bytes;
    for (int64_t b = 0; b < blocks; ++b)
      pack_block(matrix, type, row, b * info.block_elements, layer, to + b * info.block_bytes);
  });
  return out;
}

std::optional<Scheme> scheme_of(GgmlType type) {
  Scheme scheme;
  switch (type) {
    case GgmlType::kQ4_0:
      scheme = Scheme::int4(32);
      break;
    case GgmlType::kQ8_0:
      scheme = Scheme::int8(32);
      break;
    case GgmlType::kMXFP4:
      return Scheme::mxfp4();
    case GgmlType::kNVFP4:
      return Scheme::nvfp4();
    default:
      return std::nullopt;
  }
  scheme.scale_dtype = DType::kF16;
  return scheme;
}

QuantizedMatrix unpack_ggml_blocks(const GgufTensor& tensor, int64_t half_head,
                                   float tensor_scale) {
  const GgmlTypeInfo& info = ggml_type_info(tensor.type);
  ScaleGrid grid;
  grid.scheme = *scheme_of(tensor.type);
  grid.rows = tensor.shape[0];
  grid.cols = tensor.shape[1];
  grid.groups = grid.cols / group_elements(tensor.type);
  const bool is_nvfp4 = tensor.type == GgmlType::kNVFP4;
  const bool is_coded = is_nvfp4 || tensor.type == GgmlType::kMXFP4;
  if (is_nvfp4) grid.global_divisor = 1.0f / tensor_scale;
  if (!std::isfinite(grid.global_divisor) || grid.global_divisor <= 0) {
    throw UnsupportedError(
        format("tensor %s has the scale %g, whose reciprocal is no positive number",
               printable(tensor.name).c_str(), static_cast<double>(tensor_scale)));
  }
  grid.scales.resize(static_cast<size_t>(grid.rows * grid.groups));
  if (is_coded) grid.scale_codes.resize(grid.scales.size());
  QuantizedMatrix matrix(std::move(grid));
  const int64_t blocks = matrix.cols() / info.block_elements;
  const int64_t groups_a_block = info.block_elements / group_elements(tensor.type);
  parallel_for(0, matrix.rows(), [&](int64_t row) {
    const auto* from = reinterpret_cast<const uint8_t*>(tensor.data) +
                       stored_row(row, half_head) * blocks * info.block_bytes;
    for (int64_t b = 0; b < blocks; ++b, from += info.block_bytes) {
      unpack_codes(tensor.type, from + code_offset(tensor.type), row, b * info.block_elements,
                   &matrix);
      for (int64_t g = 0; g < groups_a_block; ++g) {
        const int64_t group = b * groups_a_block + g, at = row * matrix.grid.groups + group;
        float scale = 0;
        if (is_coded) {
          uint8_t code = from[g];
          if (is_nvfp4) code = code == 0x7f ? 0 : code & 0x7f;
          scale = is_nvfp4 ? e4m3_to_f32(code) / matrix.grid.global_divisor : e8m0_to_f32(code);
          matrix.grid.scale_codes[at] = code;
        } else {
          uint16_t half;
          std::memcpy(&half, from, sizeof(half));
          scale = f16_to_f32(half);
        }
        if (!std::isfinite(scale)) {
          throw FormatError(format("tensor %s: the scale of row %lld, group %lld is not finite",
                                   printable(tensor.name).c_str(), static_cast<long long>(row),
                                   static_cast<long long>(group)));
        }
        if (scale == 0) {  // loaders want one
          clear_group(row, group, &matrix);
          if (is_nvfp4) matrix.grid.scale_codes[at] = kE4M3One;
          scale = is_nvfp4 ? 1.0f / matrix.grid.global_divisor : 1.0f;
        }
        matrix.grid.scales[at] = scale;
      }
    }
  });
  return matrix;
}

}  // namespace curvq::io
