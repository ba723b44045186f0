// The W4A4 kernels, emulated: the quantizer against round_inputs(), products against float64.
#include "kernels/cuda/w4a4.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/formats/dtype.h"
#include "emulated_w4a4.h"
#include "products.h"

namespace curvq {
namespace {

using simt::Landing;
using simt::Order;

uint16_t narrow(float value, Float16Type type) {
  return type == Float16Type::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
}

W4A4Matrix quantize(const W4A4Case& c, const simt::Settings& settings) {
  simt::Report report;
  const W4A4Matrix x = emulate_quantize(c, settings, &report);
  EXPECT_TRUE(report.findings.empty()) << c.name() << "\n" << report.str();
  return x;
}

void expect_right(W4A4Case c, const simt::Settings& settings) {
  const W4A4Matrix x = quantize(c, settings);
  EXPECT_EQ(quantizer_problem(c, x), "") << c.name();
  const simt::Report report = emulate_w4a4(&c, x, settings);
  EXPECT_TRUE(report.findings.empty()) << c.name() << "\n" << report.str();
  EXPECT_EQ(product_problem(c, x), "") << c.name();
}

TEST(W4A4, PackingIsUndoneExactly) {
  std::mt19937 random(1);
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4()}) {
    const QuantizedMatrix matrix = random_codes(scheme, 141, 288, false, random);
    const QuantizedMatrix back = unpack_w4a4(pack_w4a4(matrix));
    EXPECT_EQ(back.codes, matrix.codes);
    EXPECT_EQ(back.grid.scale_codes, matrix.grid.scale_codes);
    EXPECT_EQ(back.grid.scales, matrix.grid.scales);
  }
}

// cuBLASLt's layout as its documentation gives it: element (r, c) of a 128x4 tile at
// (r % 32) * 16 + (r / 32) * 4 + c, tiles of a row block one after another.
TEST(W4A4, ScalesLieAsCublasLtReadsThem) {
  std::mt19937 random(1);
  const QuantizedMatrix matrix = random_codes(Scheme::nvfp4(), 200, 256, false, random);
  const W4A4Matrix packed = pack_w4a4(matrix);
  ASSERT_EQ(packed.scales.size(), 2 * 4 * 512);
  int64_t at = 0;
  for (int64_t row_block = 0; row_block < 2; ++row_block)
    for (int64_t tile = 0; tile < 4; ++tile)
      for (int64_t row = 0; row < 32; ++row)
        for (int64_t quarter = 0; quarter < 4; ++quarter)
          for (int64_t column = 0; column < 4; ++column, ++at) {
            const int64_t r = 128 * row_block + 32 * quarter + row, g = 4 * tile + column;
            EXPECT_EQ(packed.scales[at], r < 200 ? matrix.grid.scale_codes[r * 16 + g] : 0);
          }
}

TEST(W4A4, IntegersAreExact) {
  for (const W4A4Kind& kind : w4a4_kinds())
    for (const int64_t m : {3, 130})
      expect_right(make_w4a4_case(kind, m, 140, 320, true, 1), {.order = Order::kShuffled});
}

TEST(W4A4, RandomProductsStayWithinTheBound) {
  for (const W4A4Kind& kind : w4a4_kinds())
    expect_right(make_w4a4_case(kind, 67, 72, 512, false, 2),
                 {.order = Order::kReverse, .landing = Landing::kEarly});
}

TEST(W4A4, RaggedShapesInAllOrders) {
  const int64_t shapes[][3] = {{1, 1, 32}, {128, 128, 128}, {129, 7, 160}, {35, 257, 96}};
  int i = 0;
  for (const auto& shape : shapes)
    for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled})
      for (const Landing landing : {Landing::kEarly, Landing::kLate}) {
        expect_right(make_w4a4_case(w4a4_kinds()[static_cast<size_t>(i) % 4], shape[0], shape[1],
                                    shape[2], false, i),
                     {.order = order, .landing = landing, .seed = 5});
        ++i;
      }
}

TEST(W4A4, NoBankConflictsAndWholeSectors) {
  for (const W4A4Kind& kind : w4a4_kinds()) {
    W4A4Case c = make_w4a4_case(kind, 256, 128, 256, false, 5);
    c.ldx = 256;
    c.x.resize(256 * 256, 0);
    simt::Report report;
    const W4A4Matrix x = emulate_quantize(c, {.count = true}, &report);
    const auto expect_whole = [&](const simt::Counters& counters, const char* what) {
      const auto ratio = [](int64_t used, int64_t ideal) {
        return static_cast<double>(used) / static_cast<double>(ideal);
      };
      EXPECT_LE(ratio(counters.load_sectors, counters.load_ideal), 1.1) << kind.name() << what;
      EXPECT_LE(ratio(counters.store_sectors, counters.store_ideal), 1.1) << kind.name() << what;
      if (counters.shared_ideal > 0) {
        EXPECT_LE(ratio(counters.shared_wavefronts, counters.shared_ideal), 1.01)
            << kind.name() << what;
      }
    };
    expect_whole(report.counters, " quantizer");
    const simt::Report product = emulate_w4a4(&c, x, {.count = true});
    expect_whole(product.counters, " product");
    EXPECT_EQ(product.counters.mma, 2 * (256 / 64) * (128 / 16) * (128 / 8));
  }
}

// Groups of zeros, of the largest numbers and of subnormal ones, ties between codes, signs.
TEST(W4A4, TheQuantizerRoundsWhatIsHard) {
  for (const W4A4Kind& kind : w4a4_kinds()) {
    W4A4Case c = make_w4a4_case(kind, 3, 16, 256, false, 1);
    const float largest = kind.type == Float16Type::kFloat16 ? 65504.0f : 3.3895314e38f;
    const float ties[] = {0.25f, -0.75f, 1.25f, -1.75f, 2.5f, -3.5f, 5.0f, -6.0f, -0.2f};
    for (int64_t j = 0; j < 256; ++j) {
      c.x[j] = narrow(0.0f, kind.type);
      c.x[c.ldx + j] = j % 2 == 0 ? uint16_t{0x8001} : narrow(j < 128 ? largest : 0.0f, kind.type);
      c.x[2 * c.ldx + j] = narrow(ties[j % 9] / (j % 3 == 0 ? 1.0f : 32.0f), kind.type);
    }
    const W4A4Matrix x = quantize(c, {});
    EXPECT_EQ(quantizer_problem(c, x), "") << kind.name();
    // Zeros are zeros, with a scale that loaders accept: 1/8 of E4M3, 2^-127 of E8M0.
    const QuantizedMatrix zeros = unpack_w4a4(x);
    for (int64_t j = 0; j < 256; ++j) EXPECT_EQ(zeros.code(0, j), 0) << kind.name();
    for (int64_t g = 0; g < zeros.grid.groups; ++g)
      EXPECT_EQ(zeros.grid.scale_codes[g], kind.scheme.group_size == 16 ? 0x20 : 0);
  }
}

// A product with activations that are not finite is not finite where they enter, and right
// elsewhere.
TEST(W4A4, NaNAndInfinityAreSeenInTheirRows) {
  for (const W4A4Kind& kind : w4a4_kinds()) {
    W4A4Case c = make_w4a4_case(kind, 4, 8, 128, false, 1);
    c.x[5] = 0x7fff;
    c.x[c.ldx + 70] = kind.type == Float16Type::kFloat16 ? 0x7c00 : 0x7f80;  // infinity
    const W4A4Matrix x = quantize(c, {});
    emulate_w4a4(&c, x, {});
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 8; ++j)
        EXPECT_EQ(
            std::isnan(kind.type == Float16Type::kFloat16 ? f16_to_f32(c.out[i * c.ldout + j])
                                                          : bf16_to_f32(c.out[i * c.ldout + j])),
            i < 2)
            << kind.name();
  }
}

TEST(W4A4, RefusesWhatItCannotDo) {
  std::mt19937 random(1);
  for (const Scheme& scheme : {Scheme::int4(32), Scheme::fp8()})
    EXPECT_THROW(pack_w4a4(random_codes(scheme, 8, 64, false, random)), UnsupportedError);
  QuantizedMatrix matrix = random_codes(Scheme::nvfp4(), 8, 64, false, random);
  EXPECT_THROW(internal::plan_w4a4(pack_w4a4(matrix), 4, 64, 8), UsageError);  // no input scale
  matrix.input_scale = 2;
  const W4A4Matrix packed = pack_w4a4(matrix);
  EXPECT_NO_THROW(internal::plan_w4a4(packed, 4, 64, 8));
  EXPECT_THROW(internal::plan_w4a4(packed, 4, 60, 8), UsageError);
  EXPECT_THROW(internal::plan_w4a4(packed, 4, 68, 8), UsageError);  // rows not on 16 bytes
  EXPECT_THROW(internal::plan_w4a4(packed, 4, 64, 7), UsageError);
  EXPECT_THROW(internal::plan_w4a4(packed, -1, 64, 8), UsageError);
  const W4A4Matrix other = pack_w4a4(random_codes(Scheme::mxfp4(), 8, 64, false, random));
  EXPECT_THROW(w4a4_reference(packed, other, Float16Type::kFloat16, nullptr, nullptr, nullptr),
               UsageError);
}

}  // namespace
}  // namespace curvq
