// The W4A8 kernels, emulated: the quantizer against round_inputs(), products against float64.
#include "kernels/cuda/w4a8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/formats/dtype.h"
#include "emulated_w4a8.h"
#include "products.h"

namespace curvq {
namespace {

using simt::Landing;
using simt::Order;

constexpr uint16_t kNaN = 0x7fff;  // in float16 and bfloat16
constexpr Float16Type kTypes[] = {Float16Type::kBFloat16, Float16Type::kFloat16};

float widen(uint16_t bits, Float16Type type) {
  return type == Float16Type::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
uint16_t narrow(float value, Float16Type type) {
  return type == Float16Type::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
}

W4A8Inputs quantize(const W4A8Case& c, const simt::Settings& settings) {
  simt::Report report;
  const W4A8Inputs x = emulate_quantize_rows(c, settings, &report);
  EXPECT_TRUE(report.findings.empty()) << report.str();
  return x;
}

void expect_right(W4A8Case c, const simt::Settings& settings) {
  const W4A8Inputs x = quantize(c, settings);
  EXPECT_EQ(quantizer_problem(c, x), "") << c.name();
  const simt::Report report = emulate_w4a8(&c, x, settings);
  EXPECT_TRUE(report.findings.empty()) << c.name() << "\n" << report.str();
  EXPECT_EQ(product_problem(c, x), "") << c.name();
}

TEST(W4A8, PackingIsUndoneExactly) {
  std::mt19937 random(1);
  const QuantizedMatrix matrix = random_codes(Scheme::mxfp4(), 141, 288, false, random);
  const QuantizedMatrix back = unpack_w4a8(pack_w4a8(matrix));
  EXPECT_EQ(back.codes, matrix.codes);
  EXPECT_EQ(back.grid.scale_codes, matrix.grid.scale_codes);
  EXPECT_EQ(back.grid.scales, matrix.grid.scales);
}

TEST(W4A8, IntegersAreExact) {
  for (const Float16Type type : kTypes)
    for (const int64_t m : {3, 130})
      expect_right(make_w4a8_case(type, m, 140, 320, true, 1), {.order = Order::kShuffled});
}

TEST(W4A8, RandomProductsStayWithinTheBound) {
  for (const Float16Type type : kTypes)
    expect_right(make_w4a8_case(type, 67, 72, 512, false, 2),
                 {.order = Order::kReverse, .landing = Landing::kEarly});
}

TEST(W4A8, RaggedShapesInAllOrders) {
  const int64_t shapes[][3] = {{1, 1, 32}, {128, 128, 128}, {129, 7, 160}, {35, 257, 96}};
  int i = 0;
  for (const auto& shape : shapes)
    for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled})
      for (const Landing landing : {Landing::kEarly, Landing::kLate}) {
        expect_right(make_w4a8_case(kTypes[i % 2], shape[0], shape[1], shape[2], false, i),
                     {.order = order, .landing = landing, .seed = 5});
        ++i;
      }
}

TEST(W4A8, NoBankConflictsAndWholeSectors) {
  for (const Float16Type type : kTypes) {
    W4A8Case c = make_w4a8_case(type, 128, 128, 256, false, 5);
    c.ldx = 256;
    c.x.resize(128 * 256, 0);
    simt::Report report;
    const W4A8Inputs x = emulate_quantize_rows(c, {.count = true}, &report);
    const simt::Report product = emulate_w4a8(&c, x, {.count = true});
    const auto ratio = [](int64_t used, int64_t ideal) {
      return static_cast<double>(used) / static_cast<double>(ideal);
    };
    // A row's scale is one store of four bytes.
    EXPECT_LE(ratio(report.counters.load_sectors, report.counters.load_ideal), 1.01);
    EXPECT_LE(ratio(report.counters.store_sectors, report.counters.store_ideal), 1.01);
    EXPECT_LE(ratio(product.counters.load_sectors, product.counters.load_ideal), 1.1);
    EXPECT_LE(ratio(product.counters.store_sectors, product.counters.store_ideal), 1.1);
    EXPECT_LE(ratio(product.counters.shared_wavefronts, product.counters.shared_ideal), 1.01);
    EXPECT_EQ(product.counters.mma, (256 / 32) * (128 / 16) * (128 / 8));
  }
}

// Rows of zeros, of the largest numbers and of subnormal ones, ties, NaN and infinity.
TEST(W4A8, HardRows) {
  for (const Float16Type type : kTypes) {
    W4A8Case c = make_w4a8_case(type, 5, 16, 256, false, 1);
    const float largest = type == Float16Type::kFloat16 ? 65504.0f : 3.3895314e38f;
    const float ties[] = {17.0f, 18.0f, 19.0f, -17.0f, 0.0009765625f, -0.001953125f, 448.0f};
    for (int64_t j = 0; j < 256; ++j) {
      c.x[j] = narrow(0.0f, type);
      c.x[c.ldx + j] = narrow(j % 2 == 0 ? largest : -largest / 300, type);
      c.x[2 * c.ldx + j] = narrow(ties[j % 7], type);
    }
    c.x[3 * c.ldx + 200] = kNaN;
    c.x[4 * c.ldx + 9] = type == Float16Type::kFloat16 ? 0x7c00 : 0x7f80;  // infinity
    const W4A8Inputs x = quantize(c, {});
    emulate_w4a8(&c, x, {});
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = 0; j < 16; ++j)
        EXPECT_EQ(std::isnan(widen(c.out[i * c.ldout + j], type)), i >= 3) << i;
    c.m = 3;
    EXPECT_EQ(quantizer_problem(c, x), "") << c.name();
  }
}

TEST(W4A8, RefusesWhatItCannotDo) {
  std::mt19937 random(1);
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::int4(32), Scheme::fp8()})
    EXPECT_THROW(pack_w4a8(random_codes(scheme, 8, 64, false, random)), UnsupportedError);
  const W4A8Weight packed = pack_w4a8(random_codes(Scheme::mxfp4(), 8, 64, false, random));
  EXPECT_NO_THROW(internal::plan_w4a8(packed, 4, 64, 8));
  EXPECT_THROW(internal::plan_w4a8(packed, 4, 60, 8), UsageError);
  EXPECT_THROW(internal::plan_w4a8(packed, 4, 68, 8), UsageError);  // rows not on 16 bytes
  EXPECT_THROW(internal::plan_w4a8(packed, 4, 64, 7), UsageError);
  EXPECT_THROW(internal::plan_w4a8(packed, -1, 64, 8), UsageError);
}

}  // namespace
}  // namespace curvq
