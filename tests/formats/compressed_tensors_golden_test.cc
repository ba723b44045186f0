// Scales, codes, zero points and dequantized values of compressed-tensors, to the bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/golden.h"

namespace curvq {
namespace {

using testing::Golden;
using testing::GoldenTensor;

struct File {
  const char* name;
  Scheme scheme;
};

std::ostream& operator<<(std::ostream& out, const File& file) { return out << file.name; }

// Element (row, col) of 32-bit words that hold `bits`-wide fields along each row, first field low.
int packed_field(const GoldenTensor& words, int bits, int64_t row, int64_t col) {
  const int64_t index = row * words.cols() * 32 + col * bits;
  return words.bytes.at(index / 8) >> (index % 8) & ((1 << bits) - 1);
}

bool same_code(const Scheme& scheme, int ours, int theirs) {
  if (scheme.element == ElementType::kE2M1 && ours == 0 && theirs == 8) return true;  // minus zero
  return ours == theirs;
}

class CompressedTensorsTest : public ::testing::TestWithParam<File> {
 protected:
  // Stored code of the golden file, as a QuantizedMatrix would hold it.
  static int golden_code(const Golden& golden, const std::string& name, const Scheme& scheme,
                         int64_t row, int64_t col) {
    if (!golden.has(name + "/weight_packed")) {  // naive-quantized: signed bytes or E4M3
      const GoldenTensor& codes = golden[name + "/weight"];
      const uint8_t byte = codes.bytes.at(row * codes.cols() + col);
      return scheme.element == ElementType::kE4M3 ? byte : static_cast<int8_t>(byte) + 128;
    }
    const GoldenTensor& packed = golden[name + "/weight_packed"];
    if (packed.dtype == DType::kI32) return packed_field(packed, scheme.bits, row, col);
    return packed.bytes.at(row * packed.cols() + col / 2) >> (4 * (col % 2)) & 15;
  }
};

TEST_P(CompressedTensorsTest, EqualsGolden) {
  const Golden golden(GetParam().name);
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const GoldenTensor& x = golden[name + "/x"];
    const int64_t rows = x.rows(), cols = x.cols();
    const std::vector<float> weight = x.f32();
    Scheme scheme = GetParam().scheme;
    scheme.rule = ScaleRule::kCompressedTensors;
    scheme.source_dtype = scheme.scale_dtype = x.dtype;
    const QuantizedMatrix q =
        quantize_rtn(weight.data(), rows, cols, scheme, max_abs(weight.data(), rows * cols));

    const GoldenTensor& scale = golden[name + "/weight_scale"];
    if (scheme.scale_type == ScaleType::kFloat) {
      EXPECT_EQ(q.grid.scales, scale.f32());
    } else {
      EXPECT_EQ(q.grid.scale_codes, scale.bytes);
    }
    if (scheme.scale_type == ScaleType::kE4M3) {
      EXPECT_EQ(q.grid.global_divisor, golden[name + "/weight_global_scale"].f32().at(0));
    }
    int64_t wrong_codes = 0, wrong_values = 0, wrong_zero_points = 0;
    std::vector<float> values(rows * cols);
    dequantize(q, values.data());
    const GoldenTensor& dequant = golden[name + "/dequant"];
    const std::vector<float> expected = dequant.f32();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        wrong_codes += !same_code(scheme, q.code(r, c), golden_code(golden, name, scheme, r, c));
        const float ours = round_to_dtype(values[r * cols + c], dequant.dtype);
        wrong_values += ours != expected[r * cols + c];
      }
    }
    EXPECT_EQ(wrong_codes, 0);
    EXPECT_EQ(wrong_values, 0);
    if (!scheme.symmetric) {
      const GoldenTensor& zero = golden[name + "/weight_zero_point"];
      const int64_t groups = q.grid.groups;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t g = 0; g < groups; ++g) {  // words run along rows: [ceil(rows / 8), groups]
          const int64_t word = r / 8 * groups + g;
          const int nibble = zero.bytes.at(4 * word + r % 8 / 2) >> (4 * (r % 2)) & 15;
          wrong_zero_points += q.grid.zero_point(r, g) + 8 != nibble;
        }
      }
      EXPECT_EQ(wrong_zero_points, 0);
    }
    // What is packed equals the file's memory, row by row (E2M1's minus zero aside).
    if (golden.has(name + "/weight_packed") && scheme.element == ElementType::kInt) {
      EXPECT_EQ(q.codes, golden[name + "/weight_packed"].bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CompressedTensorsTest,
                         ::testing::Values(File{"ct_nvfp4_pack_quantized", Scheme::nvfp4()},
                                           File{"ct_mxfp4_pack_quantized", Scheme::mxfp4()},
                                           File{"ct_int4_sym_g128", Scheme::int4(128)},
                                           File{"ct_int4_sym_g64", Scheme::int4(64)},
                                           File{"ct_int4_sym_g32", Scheme::int4(32)},
                                           File{"ct_int4_sym_channel", Scheme::int4(0)},
                                           File{"ct_int4_asym_g128", Scheme::int4(128, false)},
                                           File{"ct_int4_asym_channel", Scheme::int4(0, false)},
                                           File{"ct_int8_pack_g128", Scheme::int8(128)},
                                           File{"ct_int8_naive_channel", Scheme::int8()},
                                           File{"ct_fp8_naive_channel", Scheme::fp8()}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace curvq
