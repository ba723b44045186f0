#include "curvq/io/expert_tensors.h"

#include <cstring>

#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
TensorView tensor_of(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                     const std::vector<T>& values) {
  TensorView view;
  view.name = name;
  view.dtype = dtype;
  view.shape = shape;
  view.file = "model.safetensors";
  view.data = reinterpret_cast<const std::byte*>(values.data());
  return view;
}

// Values that tell their place: 0, 1, ...
template <typename T>
std::vector<T> counting(int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
  return values;
}

const TensorView& named(const std::vector<TensorView>& views, const std::string& name) {
  for (const TensorView& view : views) {
    if (view.name == name) return view;
  }
  throw std::runtime_error("no view " + name);
}

constexpr char kGateUp[] = "model.layers.0.mlp.experts.gate_up_proj";
constexpr char kDown[] = "model.layers.0.mlp.experts.down_proj";
constexpr char kThird[] = "model.layers.0.mlp.experts.2.";

TEST(ExpertViews, PlainWeightsAreTransposedAndTakeTurns) {
  const int64_t experts = 3, in = 50, out = 35;
  const auto values = counting<float>(experts * in * 2 * out);
  const TensorView fused = tensor_of(kGateUp, DType::kF32, {experts, in, 2 * out}, values);
  const std::vector<TensorView> views = expert_views(fused);
  ASSERT_EQ(views.size(), 6u);
  for (const int64_t turn : {0, 1}) {
    const TensorView& view =
        named(views, kThird + std::string(turn == 0 ? "gate_proj" : "up_proj") + ".weight");
    EXPECT_EQ(view.shape, (std::vector<int64_t>{out, in}));
    EXPECT_EQ(view.stored_bytes(), out * in * 4);
    const std::vector<float> found = view.to_f32();
    for (int64_t r = 0; r < out; ++r) {
      for (int64_t c = 0; c < in; ++c)
        ASSERT_EQ(found[r * in + c], values[(2 * in + c) * 2 * out + 2 * r + turn])
            << r << " " << c;
    }
    // From the middle of a row to the middle of another.
    std::vector<float> some(3 * in);
    view.read(in / 2, 3 * in, some.data());
    for (int64_t i = 0; i < 3 * in; ++i) ASSERT_EQ(some[i], found[in / 2 + i]);
  }
}

TEST(ExpertViews, BiasesAreThoseOfTheirOutputs) {
  const auto values = counting<uint16_t>(3 * 8);
  const auto views =
      expert_views(tensor_of(kGateUp + std::string("_bias"), DType::kBF16, {3, 8}, values));
  const TensorView& up = named(views, kThird + std::string("up_proj.bias"));
  EXPECT_EQ(up.shape, (std::vector<int64_t>{4}));
  uint16_t found[4];
  up.read(0, 4, found);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(found[i], 2 * 8 + 2 * i + 1);
  const auto down =
      expert_views(tensor_of(kDown + std::string("_bias"), DType::kBF16, {3, 8}, values));
  EXPECT_EQ(named(down, kThird + std::string("down_proj.bias")).data,
            reinterpret_cast<const std::byte*>(values.data() + 16));
}

TEST(ExpertViews, BlocksAndScalesKeepTheirBytes) {
  const int64_t experts = 3, out = 4, groups = 2, row = groups * 16;
  const auto codes = counting<uint8_t>(experts * 2 * out * row);
  const auto scales = counting<uint8_t>(experts * 2 * out * groups);
  const auto blocks = expert_views(tensor_of(kGateUp + std::string("_blocks"), DType::kU8,
                                             {experts, 2 * out, groups, 16}, codes));
  const TensorView& gate = named(blocks, kThird + std::string("gate_proj.weight_packed"));
  EXPECT_EQ(gate.shape, (std::vector<int64_t>{out, row}));
  std::vector<std::byte> scratch;
  const std::byte* bytes = gate.bytes(&scratch);
  for (int64_t r = 0; r < out; ++r)
    EXPECT_EQ(std::memcmp(bytes + r * row, codes.data() + (2 * 2 * out + 2 * r) * row, row), 0);
  const auto of_scales = expert_views(
      tensor_of(kGateUp + std::string("_scales"), DType::kU8, {experts, 2 * out, groups}, scales));
  const TensorView& up = named(of_scales, kThird + std::string("up_proj.weight_scale"));
  EXPECT_EQ(up.shape, (std::vector<int64_t>{out, groups}));
  std::vector<uint8_t> found(out * groups);
  up.read(0, out * groups, found.data());
  for (int64_t i = 0; i < out * groups; ++i)
    EXPECT_EQ(found[i], scales[(2 * 2 * out + 2 * (i / groups) + 1) * groups + i % groups]);
}

TEST(ExpertViews, OtherTensorsHaveNone) {
  const auto values = counting<float>(8);
  for (const char* name : {"model.layers.0.mlp.experts.2.down_proj.weight", "lm_head.weight",
                           "model.layers.0.mlp.down_proj", "experts.gate_up_proj_other"})
    EXPECT_TRUE(expert_views(tensor_of(name, DType::kF32, {2, 4}, values)).empty()) << name;
}

TEST(ExpertViews, WrongFormsAreErrors) {
  const auto values = counting<float>(64);
  const auto views = [&](const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    return expert_views(tensor_of(name, dtype, shape, values));
  };
  EXPECT_ERROR(views(kGateUp, DType::kF32, {2, 4}), FormatError,
               AllOf(HasSubstr(kGateUp), HasSubstr("F32 [2, 4]"), HasSubstr("[experts, in, out]")));
  EXPECT_ERROR(views(kGateUp, DType::kF32, {2, 4, 3}), FormatError, HasSubstr("odd number"));
  EXPECT_ERROR(views(kDown + std::string("_blocks"), DType::kU8, {2, 4, 2, 8}), FormatError,
               HasSubstr("[experts, out, in / 32, 16]"));
  EXPECT_ERROR(views(kDown + std::string("_scales"), DType::kF32, {2, 4, 2}), FormatError,
               HasSubstr("wanted U8"));
  EXPECT_ERROR(views(kDown + std::string("_bias"), DType::kU8, {2, 4}), FormatError,
               HasSubstr("wanted F32, F16 or BF16"));
}

}  // namespace
}  // namespace curvq
