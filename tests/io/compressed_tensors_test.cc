#include "curvq/io/compressed_tensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "curvq/formats/input_rounding.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using Tensors = std::vector<TensorData>;

template <typename Value>
TensorData tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                  const std::vector<Value>& values) {
  TensorData out;
  out.name = name;
  out.dtype = dtype;
  out.shape = shape;
  out.data.resize(values.size() * sizeof(Value));
  if (!values.empty()) std::memcpy(out.data.data(), values.data(), out.data.size());
  return out;
}

// Writes `tensors` and reads layer "m.proj" back.
QuantizedMatrix unpack(const Tensors& tensors, const Scheme& scheme) {
  TemporaryDirectory directory;
  CheckpointWriter writer(directory.path(), {tensors.begin(), tensors.end()});
  for (const TensorData& t : tensors) writer.write(t);
  writer.finish();
  return compressed_tensors_unpack(Checkpoint(directory.path()), "m.proj", scheme);
}

TensorData& find(Tensors& tensors, const std::string& suffix) {
  for (TensorData& t : tensors) {
    if (t.name == "m.proj." + suffix) return t;
  }
  throw std::logic_error(suffix);
}

void remove(Tensors& tensors, const std::string& suffix) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "m.proj." + suffix)
      tensors.erase(tensors.begin() + static_cast<int>(i--));
  }
}

QuantizedMatrix random_matrix(const Scheme& scheme, int64_t rows, int64_t cols) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> weight(static_cast<size_t>(rows * cols));
  for (float& w : weight) w = normal(random) + 0.3f;
  return quantize_rtn(weight.data(), rows, cols, scheme, max_abs(weight.data(), rows * cols));
}

Tensors packed(const Scheme& scheme, int64_t rows, int64_t cols) {
  return compressed_tensors_pack("m.proj", random_matrix(scheme, rows, cols));
}

Scheme with_scale_dtype(Scheme scheme, DType dtype) {
  scheme.scale_dtype = dtype;
  return scheme;
}

TEST(CompressedTensors, FormatsHaveTheirNames) {
  EXPECT_EQ(compressed_tensors_format(Scheme::nvfp4()), "nvfp4-pack-quantized");
  EXPECT_EQ(compressed_tensors_format(Scheme::mxfp4()), "mxfp4-pack-quantized");
  EXPECT_EQ(compressed_tensors_format(Scheme::int4(64, false)), "pack-quantized");
  EXPECT_EQ(compressed_tensors_format(Scheme::int8()), "pack-quantized");
  EXPECT_EQ(compressed_tensors_format(Scheme::fp8()), "float-quantized");
  EXPECT_ERROR(compressed_tensors_format(Scheme::fp8(128)), UnsupportedError,
               HasSubstr("groups of 128"));
}

TEST(CompressedTensors, GroupThatDoesNotDivideIsRefused) {
  EXPECT_ERROR(compressed_tensors_infos("m", Scheme::int4(128), 4, 172), UsageError,
               HasSubstr("128"));
}

TEST(CompressedTensors, RoundTripKeepsEverything) {
  for (const Scheme& scheme :
       {Scheme::nvfp4(), Scheme::mxfp4(), with_scale_dtype(Scheme::int4(32), DType::kBF16),
        Scheme::int4(32, false), Scheme::int4(0, false),
        with_scale_dtype(Scheme::int8(32), DType::kF16), Scheme::int8(0, false), Scheme::fp8()}) {
    for (const int64_t rows : {1, 3, 8, 9}) {
      const int64_t cols = scheme.group_size == 0 ? 37 : 96;
      const QuantizedMatrix matrix = random_matrix(scheme, rows, cols);
      const QuantizedMatrix back = unpack(compressed_tensors_pack("m.proj", matrix), scheme);
      EXPECT_EQ(back.codes, matrix.codes) << scheme.describe();
      EXPECT_EQ(back.grid.scales, matrix.grid.scales) << scheme.describe();
      EXPECT_EQ(back.grid.scale_codes, matrix.grid.scale_codes);
      EXPECT_EQ(back.grid.zero_points, matrix.grid.zero_points);
      EXPECT_EQ(back.grid.global_divisor, matrix.grid.global_divisor);
      EXPECT_EQ(back.grid.scheme, matrix.grid.scheme);
    }
  }
}

Scheme with_inputs(Scheme scheme, InputFormat inputs) {
  scheme.inputs = inputs;
  return scheme;
}

TEST(CompressedTensors, RoundTripKeepsInputScales) {
  for (const Scheme& scheme :
       {with_inputs(Scheme::nvfp4(), InputFormat::kNvfp4),
        with_inputs(Scheme::mxfp4(), InputFormat::kMxfp4),
        with_inputs(Scheme::int8(), InputFormat::kInt8),
        with_inputs(with_scale_dtype(Scheme::fp8(), DType::kBF16), InputFormat::kFp8Tensor)}) {
    QuantizedMatrix matrix = random_matrix(scheme, 8, 96);
    matrix.input_scale = input_scale(scheme, 3.3f);
    const Tensors tensors = compressed_tensors_pack("m.proj", matrix);
    int64_t bytes = 0;
    for (const TensorData& tensor : tensors) {
      if (!tensor.name.ends_with("_shape")) bytes += tensor.num_bytes();
    }
    EXPECT_EQ(bytes, matrix.stored_bytes()) << scheme.describe();
    const QuantizedMatrix back = unpack(tensors, scheme);
    EXPECT_EQ(back.codes, matrix.codes) << scheme.describe();
    EXPECT_EQ(back.grid.scales, matrix.grid.scales);
    EXPECT_EQ(back.scheme(), scheme);
    EXPECT_EQ(back.input_scale, matrix.input_scale) << scheme.describe();
    EXPECT_EQ(back.input_scale > 0, has_input_scale(scheme.inputs));
  }
}

TEST(CompressedTensors, InputScalesMustBeThereAndPositive) {
  const Scheme scheme = with_inputs(Scheme::nvfp4(), InputFormat::kNvfp4);
  QuantizedMatrix matrix = random_matrix(scheme, 8, 32);
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    matrix.input_scale = bad;
    EXPECT_ERROR(unpack(compressed_tensors_pack("m.proj", matrix), scheme), FormatError,
                 AllOf(HasSubstr("m.proj.input_global_scale"), HasSubstr("positive")));
  }
  Tensors tensors = compressed_tensors_pack("m.proj", matrix);
  remove(tensors, "input_global_scale");
  EXPECT_ERROR(unpack(tensors, scheme), FormatError, HasSubstr("m.proj.input_global_scale"));
}

TEST(CompressedTensors, ScaleDtypeIsTakenFromTheFile) {
  const Tensors tensors = packed(with_scale_dtype(Scheme::int4(32), DType::kBF16), 4, 64);
  EXPECT_EQ(unpack(tensors, Scheme::int4(32)).scheme().scale_dtype, DType::kBF16);
}

TEST(CompressedTensors, ZeroPointsArePackedAlongRows) {
  QuantizedMatrix matrix = random_matrix(Scheme::int4(8, false), 10, 16);
  for (int64_t row = 0; row < 10; ++row) {
    for (int64_t group = 0; group < 2; ++group) {
      matrix.grid.zero_points[row * 2 + group] = static_cast<int8_t>((row + 5 * group) % 16 - 8);
    }
  }
  Tensors tensors = compressed_tensors_pack("m.proj", matrix);
  const TensorData& zero_point = find(tensors, "weight_zero_point");
  EXPECT_THAT(zero_point.shape, ElementsAre(2, 2));
  uint32_t words[4] = {};
  std::memcpy(words, zero_point.data.data(), sizeof(words));
  EXPECT_THAT(words, ElementsAre(0x76543210u, 0xCBA98765u, 0x00000098u, 0x000000EDu));
}

TEST(CompressedTensors, MissingTensorsAreNamed) {
  for (const char* suffix : {"weight_scale", "weight_shape", "weight_zero_point"}) {
    Tensors tensors = packed(Scheme::int4(32, false), 4, 64);
    remove(tensors, suffix);
    EXPECT_ERROR(unpack(tensors, Scheme::int4(32, false)), FormatError,
                 HasSubstr(std::string("has no tensor m.proj.") + suffix));
  }
  Tensors tensors = packed(Scheme::nvfp4(), 4, 64);
  remove(tensors, "weight_global_scale");
  EXPECT_ERROR(unpack(tensors, Scheme::nvfp4()), FormatError, HasSubstr("weight_global_scale"));
  EXPECT_ERROR(unpack({}, Scheme::int8()), FormatError, HasSubstr("has no tensor m.proj.weight"));
}

TEST(CompressedTensors, WrongDtypesAndShapesAreNamed) {
  Tensors tensors = packed(Scheme::nvfp4(), 4, 64);
  EXPECT_ERROR(unpack(tensors, Scheme::int4(32)), FormatError,
               AllOf(HasSubstr("model.safetensors: m.proj.weight_packed is U8 [4, 32]"),
                     HasSubstr("wanted I32")));
  EXPECT_ERROR(unpack(tensors, Scheme::mxfp4()), FormatError,
               HasSubstr("m.proj.weight_scale is F8_E4M3 [4, 4], wanted U8"));
  find(tensors, "weight_scale").shape = {2, 8};
  EXPECT_ERROR(unpack(tensors, Scheme::nvfp4()), FormatError,
               HasSubstr("weight_scale is F8_E4M3 [2, 8], wanted [4, 4] for a weight of [4, 64]"));
  tensors = packed(Scheme::nvfp4(), 4, 64);
  find(tensors, "weight_packed").shape = {128};
  EXPECT_ERROR(unpack(tensors, Scheme::nvfp4()), FormatError, HasSubstr("wanted a matrix"));
  find(tensors, "weight_packed").shape = {32, 4};
  EXPECT_ERROR(unpack(tensors, Scheme::nvfp4()), FormatError, HasSubstr("no multiple of"));
}

TEST(CompressedTensors, WeightShapeMustFitThePackedCodes) {
  for (const auto& shape :
       {std::vector<int64_t>{4, 65}, {4, 56}, {5, 64}, {4, -64}, {4, INT64_MAX}}) {
    Tensors tensors = packed(Scheme::int4(32), 4, 64);
    remove(tensors, "weight_shape");
    tensors.push_back(tensor("m.proj.weight_shape", DType::kI64, {2}, shape));
    EXPECT_ERROR(unpack(tensors, Scheme::int4(32)), FormatError,
                 AllOf(HasSubstr("weight_packed is I32 [4, 8]"), HasSubstr(shape_string(shape))));
  }
  Tensors tensors = packed(Scheme::int4(0), 4, 64);
  remove(tensors, "weight_shape");
  tensors.push_back(tensor("m.proj.weight_shape", DType::kI32, {2}, std::vector<int32_t>{4, 61}));
  EXPECT_EQ(unpack(tensors, Scheme::int4(0)).cols(), 61);
}

TEST(CompressedTensors, SpareNibblesAreCleared) {
  Tensors tensors = packed(Scheme::int4(0), 2, 13);
  std::fill(find(tensors, "weight_packed").data.begin(), find(tensors, "weight_packed").data.end(),
            std::byte{0xFF});
  const QuantizedMatrix matrix = unpack(tensors, Scheme::int4(0));
  EXPECT_EQ(matrix.row_bytes, 8);
  EXPECT_EQ(matrix.code(1, 12), 15);
  EXPECT_EQ(matrix.codes[14], 0x0F);
  EXPECT_EQ(matrix.codes[15], 0);
}

TEST(CompressedTensors, ScalesMustBeFinite) {
  Tensors tensors = packed(Scheme::int4(32), 2, 64);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(find(tensors, "weight_scale").data.data() + 8, &nan, sizeof(nan));
  EXPECT_ERROR(unpack(tensors, Scheme::int4(32)), FormatError,
               HasSubstr("row 1 group 0 is not finite"));
  tensors = packed(Scheme::mxfp4(), 2, 64);
  find(tensors, "weight_scale").data[1] = std::byte{0xFF};
  EXPECT_ERROR(unpack(tensors, Scheme::mxfp4()), FormatError,
               HasSubstr("row 0 group 1 is not finite"));
  for (const float divisor : {0.0f, -1.0f, nan, std::numeric_limits<float>::infinity()}) {
    tensors = packed(Scheme::nvfp4(), 2, 64);
    std::memcpy(find(tensors, "weight_global_scale").data.data(), &divisor, sizeof(divisor));
    EXPECT_ERROR(unpack(tensors, Scheme::nvfp4()), FormatError, HasSubstr("finite and positive"));
  }
}

TEST(CompressedTensors, Fp8CodesMustBeNumbers) {
  Tensors tensors = packed(Scheme::fp8(), 3, 5);
  find(tensors, "weight").data[7] = std::byte{0xFF};
  EXPECT_ERROR(unpack(tensors, Scheme::fp8()), FormatError,
               HasSubstr("row 1 column 2 is not a number"));
}

TEST(CompressedTensors, OneScaleMayServeAllRows) {
  Tensors tensors = packed(Scheme::fp8(), 3, 5);
  remove(tensors, "weight_scale");
  tensors.push_back(tensor("m.proj.weight_scale", DType::kF32, {1}, std::vector<float>{0.5f}));
  EXPECT_THAT(unpack(tensors, Scheme::fp8()).grid.scales, ElementsAre(0.5f, 0.5f, 0.5f));
  tensors.back().shape = {};
  EXPECT_THAT(unpack(tensors, Scheme::fp8()).grid.scales, ElementsAre(0.5f, 0.5f, 0.5f));
  remove(tensors, "weight_scale");
  tensors.push_back(tensor("m.proj.weight_scale", DType::kF32, {3}, std::vector<float>{1, 2, 3}));
  EXPECT_THAT(unpack(tensors, Scheme::fp8()).grid.scales, ElementsAre(1, 2, 3));
}

TEST(CompressedTensors, PlainIntegersAreRead) {
  Tensors tensors = {
      tensor("m.proj.weight", DType::kI8, {2, 3}, std::vector<int8_t>{-128, -1, 0, 1, 2, 127}),
      tensor("m.proj.weight_scale", DType::kF32, {2, 1}, std::vector<float>{1, 2}),
      tensor("m.proj.weight_zero_point", DType::kI8, {2, 1}, std::vector<int8_t>{-3, 4})};
  const QuantizedMatrix matrix = unpack(tensors, Scheme::int8(0, false));
  float out[6] = {};
  dequantize(matrix, out);
  EXPECT_THAT(out, ElementsAre(-125, 2, 3, -6, -4, 246));
  EXPECT_ERROR(unpack(tensors, Scheme::int4(0, false)), FormatError,
               HasSubstr("row 0 column 0 holds -128, which int4 channel asymmetric cannot have"));
}

TEST(CompressedTensors, SymmetricWeightsMayHaveZeroPointsOfZero) {
  Tensors tensors = packed(Scheme::int4(32), 3, 64);
  tensors.push_back(
      tensor("m.proj.weight_zero_point", DType::kI8, {3, 2}, std::vector<int8_t>(6, 0)));
  EXPECT_TRUE(unpack(tensors, Scheme::int4(32)).grid.zero_points.empty());
  tensors.back().data[5] = std::byte{1};
  EXPECT_ERROR(unpack(tensors, Scheme::int4(32)), FormatError, HasSubstr("row 2 group 1 holds 1"));
}

}  // namespace
}  // namespace curvq
