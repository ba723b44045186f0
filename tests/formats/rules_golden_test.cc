// Scales and codes of nvidia-modelopt, torchao, Four over Six and ggml, to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/golden.h"

namespace curvq {
namespace {

using testing::Golden;
using testing::GoldenTensor;

Scheme with_rule(Scheme scheme, ScaleRule rule, MxRule mx_rule = MxRule::kEven) {
  scheme.rule = rule;
  scheme.mx_rule = mx_rule;
  return scheme;
}

QuantizedMatrix quantized(const GoldenTensor& x, const Scheme& scheme) {
  const std::vector<float> weight = x.f32();
  return quantize_rtn(weight.data(), x.rows(), x.cols(), scheme,
                      max_abs(weight.data(), static_cast<int64_t>(weight.size())));
}

// Codes two a byte along the rows, first in the low nibble; code 8 is minus zero.
void expect_packed(const QuantizedMatrix& matrix, const GoldenTensor& packed) {
  int64_t wrong = 0;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      const int theirs = packed.bytes.at(r * packed.cols() + c / 2) >> (4 * (c % 2)) & 15;
      wrong += matrix.code(r, c) != (theirs == 8 ? 0 : theirs);
    }
  }
  EXPECT_EQ(wrong, 0);
}

// E4M3 scales; where the package writes 0 we write one that decodes to zeros as well.
void expect_e4m3_scales(const QuantizedMatrix& matrix, const GoldenTensor& scale) {
  int64_t wrong = 0;
  for (size_t i = 0; i < scale.bytes.size(); ++i) {
    const uint8_t ours = matrix.grid.scale_codes.at(i);
    EXPECT_GT(ours, 0);
    wrong += scale.bytes[i] != 0 && ours != scale.bytes[i];
  }
  EXPECT_EQ(wrong, 0);
}

bool is_case(const std::string& name, const std::string& prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

// Tensors of zeros and of subnormal numbers get scales from the packages that are not finite or
// whose reciprocal is not; ours must work.
void expect_usable(const QuantizedMatrix& matrix) {
  EXPECT_TRUE(std::isfinite(matrix.grid.global_divisor));
  for (const float scale : matrix.grid.scales) {
    EXPECT_GT(scale, 0.0f);
    EXPECT_TRUE(std::isfinite(scale));
  }
}

TEST(ModelOptGoldenTest, Nvfp4) {
  const Golden golden("modelopt_nvfp4");
  const Scheme scheme = with_rule(Scheme::nvfp4(), ScaleRule::kModelOpt);
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const GoldenTensor& x = golden[name + "/x"];
    if (x.cols() % 16 != 0) continue;  // the package pads
    const QuantizedMatrix matrix = quantized(x, scheme);
    expect_usable(matrix);
    if (is_case(name, "denormal") || is_case(name, "allzero")) continue;
    EXPECT_EQ(matrix.grid.tensor_amax / 2688.0f, golden[name + "/weight_scale_2"].f32().at(0));
    EXPECT_EQ(matrix.grid.global_divisor, 1.0f / golden[name + "/weight_scale_2"].f32().at(0));
    expect_e4m3_scales(matrix, golden[name + "/weight_scale"]);
    expect_packed(matrix, golden[name + "/weight"]);
  }
}

TEST(ModelOptGoldenTest, Mxfp4) {
  const Golden golden("modelopt_mxfp4");
  const Scheme scheme = with_rule(Scheme::mxfp4(), ScaleRule::kModelOpt);
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
    EXPECT_EQ(matrix.grid.scale_codes, golden[name + "/weight_scale"].bytes);
    expect_packed(matrix, golden[name + "/weight"]);
  }
}

TEST(TorchAoGoldenTest, Nvfp4) {
  const Golden golden("torchao_nvfp4");
  const Scheme scheme = with_rule(Scheme::nvfp4(), ScaleRule::kTorchAo);
  int compared = 0;
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    if (!golden.has(name + "/per_tensor_scale")) continue;  // block scales alone
    const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
    expect_usable(matrix);
    if (is_case(name, "denormal") || is_case(name, "allzero")) continue;
    EXPECT_EQ(matrix.grid.tensor_amax / 2688.0f, golden[name + "/per_tensor_scale"].f32().at(0));
    expect_e4m3_scales(matrix, golden[name + "/scale"]);
    expect_packed(matrix, golden[name + "/packed"]);
    ++compared;
  }
  EXPECT_GT(compared, 8);
}

TEST(TorchAoGoldenTest, Mxfp4) {
  const Golden golden("torchao_mxfp4");
  for (const MxRule rule : {MxRule::kFloor, MxRule::kEven, MxRule::kCeil, MxRule::kRceil}) {
    const Scheme scheme = with_rule(Scheme::mxfp4(), ScaleRule::kTorchAo, rule);
    int compared = 0;
    for (const std::string& name : golden.cases()) {
      const std::string prefix = name + "/" + std::string(mx_rule_name(rule));
      SCOPED_TRACE(prefix);
      if (!golden.has(prefix + ".scale")) continue;
      const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
      EXPECT_EQ(matrix.grid.scale_codes, golden[prefix + ".scale"].bytes);
      expect_packed(matrix, golden[prefix + ".packed"]);
      ++compared;
    }
    EXPECT_GT(compared, 8);
  }
}

TEST(FourOverSixGoldenTest, SumOfSquares) {
  const Golden golden("fouroversix_nvfp4");
  const Scheme scheme = with_rule(Scheme::nvfp4(), ScaleRule::kFourOverSix);
  int chose_four = 0, blocks = 0;
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
    expect_usable(matrix);
    EXPECT_EQ(matrix.grid.tensor_amax, golden[name + "/amax"].f32().at(0));
    expect_packed(matrix, golden[name + "/mse.packed"]);
    if (is_case(name, "allzero")) continue;
    EXPECT_EQ(matrix.grid.global_divisor, 1536.0f / matrix.grid.tensor_amax);
    expect_e4m3_scales(matrix, golden[name + "/mse.scale"]);
    for (size_t i = 0; i < matrix.grid.scale_codes.size(); ++i, ++blocks) {
      const std::vector<float> x = golden[name + "/x"].f32();
      const float six = max_abs(x.data() + i * 16, 16) / 6.0f * matrix.grid.global_divisor;
      chose_four += matrix.grid.scale_codes[i] > f32_to_e4m3(six);
    }
  }
  EXPECT_GT(chose_four, blocks / 10);  // both choices are exercised
  EXPECT_LT(chose_four, blocks * 9 / 10);
}

// A row's blocks: `bytes` each, for `size` elements; codes of the first half of a (sub-)block of
// `span` elements are low nibbles, those of the second half high nibbles.
struct GgufBlocks {
  const GoldenTensor& tensor;
  int64_t size, bytes, header, span;

  const uint8_t* block(int64_t row, int64_t col) const {
    return tensor.bytes.data() + row * tensor.cols() + col / size * bytes;
  }
  int nibble(int64_t row, int64_t col) const {
    const int64_t in_block = col % size, sub = in_block / span, i = in_block % span;
    const uint8_t byte = block(row, col)[header + sub * span / 2 + i % (span / 2)];
    return i < span / 2 ? byte & 15 : byte >> 4;
  }
};

const GoldenTensor& blocks_of(const Golden& golden, const std::string& name) {
  const std::string c = name + "/ggml_c.blocks";
  return golden[golden.has(c) ? c : name + "/gguf_py.blocks"];
}

float f16_at(const uint8_t* bytes) {
  return f16_to_f32(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

// Codes by `theirs(row, col)`, and the dequantized values.
template <class Codes>
void expect_gguf(const Golden& golden, const std::string& name, const QuantizedMatrix& matrix,
                 const Codes& theirs) {
  const std::vector<float> expected = golden[name + "/dequant"].f32();
  std::vector<float> values(expected.size());
  dequantize(matrix, values.data());
  int64_t wrong_codes = 0, wrong_values = 0;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      wrong_codes += matrix.code(r, c) != theirs(r, c);
      wrong_values += values[r * matrix.cols() + c] != expected[r * matrix.cols() + c];
    }
  }
  // Their float16 scale of tiny weights is 0, ours is not: the codes differ, the values do not.
  if (!is_case(name, "tiny") || matrix.scheme().element != ElementType::kInt) {
    EXPECT_EQ(wrong_codes, 0);
  }
  EXPECT_EQ(wrong_values, 0);
}

TEST(LlamaCppGoldenTest, Mxfp4) {
  const Golden golden("gguf_mxfp4");
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix =
        quantized(golden[name + "/x"], with_rule(Scheme::mxfp4(), ScaleRule::kLlamaCpp));
    const GgufBlocks blocks{blocks_of(golden, name), 32, 17, 1, 32};
    for (int64_t r = 0; r < matrix.rows(); ++r) {
      for (int64_t g = 0; g < matrix.grid.groups; ++g) {
        EXPECT_EQ(matrix.grid.scale_codes[r * matrix.grid.groups + g], blocks.block(r, 32 * g)[0]);
      }
    }
    expect_gguf(golden, name, matrix, [&](int64_t r, int64_t c) { return blocks.nibble(r, c); });
  }
}

TEST(LlamaCppGoldenTest, Nvfp4) {
  const Golden golden("gguf_nvfp4");
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix =
        quantized(golden[name + "/x"], with_rule(Scheme::nvfp4(), ScaleRule::kLlamaCpp));
    EXPECT_EQ(matrix.grid.global_divisor, 1.0f);
    const GgufBlocks blocks{blocks_of(golden, name), 64, 36, 4, 16};
    for (int64_t r = 0; r < matrix.rows(); ++r) {
      for (int64_t g = 0; g < matrix.grid.groups; ++g) {
        const int theirs = blocks.block(r, 16 * g)[g % 4];
        const int ours = matrix.grid.scale_codes[r * matrix.grid.groups + g];
        EXPECT_EQ(ours, theirs == 0 ? 0x20 : theirs);
      }
    }
    expect_gguf(golden, name, matrix, [&](int64_t r, int64_t c) { return blocks.nibble(r, c); });
  }
}

void expect_f16_scales(const QuantizedMatrix& matrix, const GgufBlocks& blocks) {
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t g = 0; g < matrix.grid.groups; ++g) {
      const float theirs = f16_at(blocks.block(r, 32 * g));
      EXPECT_NE(matrix.grid.scale(r, g), 0.0f);
      if (theirs != 0) {
        EXPECT_EQ(matrix.grid.scale(r, g), theirs);
      }
    }
  }
}

TEST(LlamaCppGoldenTest, Int4IsQ4_0) {
  const Golden golden("gguf_q4_0");
  Scheme scheme = with_rule(Scheme::int4(32), ScaleRule::kLlamaCpp);
  scheme.scale_dtype = DType::kF16;
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
    const GgufBlocks blocks{blocks_of(golden, name), 32, 18, 2, 32};
    expect_f16_scales(matrix, blocks);
    expect_gguf(golden, name, matrix, [&](int64_t r, int64_t c) { return blocks.nibble(r, c); });
  }
}

TEST(LlamaCppGoldenTest, Int8IsQ8_0) {
  const Golden golden("gguf_q8_0");
  Scheme scheme = with_rule(Scheme::int8(32), ScaleRule::kLlamaCpp);
  scheme.scale_dtype = DType::kF16;
  for (const std::string& name : golden.cases()) {
    SCOPED_TRACE(name);
    const QuantizedMatrix matrix = quantized(golden[name + "/x"], scheme);
    const GgufBlocks blocks{blocks_of(golden, name), 32, 34, 2, 32};
    expect_f16_scales(matrix, blocks);
    expect_gguf(golden, name, matrix, [&](int64_t r, int64_t c) {
      return static_cast<int8_t>(blocks.block(r, c)[2 + c % 32]) + 128;
    });
  }
}

}  // namespace
}  // namespace curvq
