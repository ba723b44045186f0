// The W4A16 kernels, emulated, against float64 products of the decoded operands.
#include "kernels/cuda/w4a16.h"

#include <gtest/gtest.h>

#include "conformance.h"
#include "curvq/core/error.h"
#include "emulated_w4a16.h"
#include "gpu_check_cases.h"

namespace curvq {
namespace {

using simt::Landing;
using simt::Order;

constexpr Float16Type kTypes[] = {Float16Type::kBFloat16, Float16Type::kFloat16};

void expect_right(const WeightKind& kind, Float16Type type, Product product,
                  const simt::Settings& settings) {
  product.k = allowed_columns(kind.scheme, product.k);
  Operands operands = make_operands(kind.scheme, type, product);
  const simt::Report report = emulate(&operands, product, settings);
  const Comparison comparison = compare(operands, product.m);
  const std::string what = kind.name + " " + type_name(type) + " " + std::to_string(product.m) +
                           "x" + std::to_string(product.n) + "x" + std::to_string(product.k);
  EXPECT_LE(comparison.worst, 1) << what;
  EXPECT_EQ(comparison.overrun, 0) << what;
  EXPECT_TRUE(report.findings.empty()) << what << "\n" << report.str();
  if (product.exact) {
    EXPECT_EQ(comparison.differing, 0) << what;
  }
}

TEST(W4A16, PackingIsUndoneExactly) {
  std::mt19937 random(1);
  for (const WeightKind& kind : weight_kinds()) {
    for (const Float16Type type : kTypes) {
      const int64_t n = 43, k = allowed_columns(kind.scheme, 300);
      const QuantizedMatrix a = random_codes(kind.scheme, n, k, false, random);
      const QuantizedMatrix b = random_codes(kind.scheme, n, k, false, random);
      const W4A16Weight pair = pack_w4a16_pair(a, b, type);
      const W4A16Weight single = pack_w4a16(a, type);
      const QuantizedMatrix back[] = {unpack_w4a16(single), unpack_w4a16(pair, 0),
                                      unpack_w4a16(pair, 1)};
      const QuantizedMatrix* want[] = {&a, &a, &b};
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(back[i].codes, want[i]->codes) << kind.name;
        EXPECT_EQ(back[i].grid.scales, want[i]->grid.scales) << kind.name;
        EXPECT_EQ(back[i].grid.scale_codes, want[i]->grid.scale_codes) << kind.name;
        EXPECT_EQ(back[i].grid.zero_points, want[i]->grid.zero_points) << kind.name;
        EXPECT_EQ(back[i].grid.global_divisor, want[i]->grid.global_divisor) << kind.name;
      }
    }
  }
}

TEST(W4A16, IntegersAreExact) {
  for (const WeightKind& kind : weight_kinds())
    for (const Float16Type type : kTypes)
      for (const int64_t m : {3, 13, 70})
        expect_right(kind, type, {.m = m, .n = 40, .k = 200, .exact = true},
                     {.order = Order::kShuffled});
}

TEST(W4A16, RandomProductsStayWithinTheBound) {
  for (const WeightKind& kind : weight_kinds())
    for (const Float16Type type : kTypes)
      for (const int64_t m : {1, 16, 33, 66})
        expect_right(kind, type, {.m = m, .n = 37, .k = 224, .bias = true, .seed = 3},
                     {.order = Order::kReverse, .landing = Landing::kEarly});
}

TEST(W4A16, SplitsOfKAndPairs) {
  for (const WeightKind& kind : weight_kinds())
    for (const Float16Type type : kTypes)
      for (const bool pair : {false, true})
        expect_right(
            kind, type,
            {.m = 11, .n = 84, .k = 700, .pair = pair, .bias = true, .splits = 3, .seed = 4},
            {.order = Order::kShuffled, .seed = 9});
}

// Splits are added in the order of k, whoever comes last.
TEST(W4A16, SplitsGiveTheSameBytesInEveryOrder) {
  const Product product{.m = 9, .n = 40, .k = 768, .splits = 3};
  std::vector<uint16_t> first;
  for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled}) {
    Operands operands = make_operands(Scheme::nvfp4(), Float16Type::kBFloat16, product);
    emulate(&operands, product, {.order = order, .seed = 2});
    if (first.empty()) first = operands.out;
    EXPECT_EQ(operands.out, first);
  }
}

TEST(W4A16, RaggedShapesInAllOrders) {
  const int64_t shapes[][3] = {
      {1, 1, 16}, {8, 128, 64}, {9, 129, 128}, {17, 7, 336}, {65, 130, 80}};
  int i = 0;
  for (const auto& shape : shapes)
    for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled})
      for (const Landing landing : {Landing::kEarly, Landing::kLate}) {
        expect_right(weight_kinds()[static_cast<size_t>(i) % weight_kinds().size()],
                     kTypes[i / 2 % 2],
                     {.m = shape[0],
                      .n = shape[1],
                      .k = shape[2],
                      .pair = i % 3 == 0,
                      .bias = i % 2 == 0,
                      .splits = 1 + i % 2,
                      .ldout = shape[1] + i % 5,
                      .seed = i},
                     {.order = order, .landing = landing, .seed = 5});
        ++i;
      }
}

// Banks of shared memory and sectors of global memory, against the least that the bytes need.
TEST(W4A16, NoBankConflictsAndWholeSectors) {
  for (const WeightKind& kind : weight_kinds())
    for (const Float16Type type : kTypes)
      for (const int64_t m : {8, 16, 64, 96}) {
        const Product product{
            .m = m,
            .n = 128,
            .k = kind.scheme.group_size == 0 ? 256 : allowed_columns(kind.scheme, 256),
            .splits = m == 8 ? 2 : 1};
        Operands operands = make_operands(kind.scheme, type, product);
        const simt::Counters c = emulate(&operands, product, {.count = true}).counters;
        const auto ratio = [](int64_t used, int64_t ideal) {
          return static_cast<double>(used) / static_cast<double>(ideal);
        };
        const std::string what = kind.name + " m " + std::to_string(m);
        EXPECT_LE(ratio(c.shared_wavefronts, c.shared_ideal), 1.01) << what;
        EXPECT_LE(ratio(c.load_sectors, c.load_ideal), 1.1) << what;
        EXPECT_LE(ratio(c.store_sectors, c.store_ideal), 1.1) << what;
        EXPECT_GT(c.mma, 0);
      }
}

// What scripts/gpu-check will ask of a device.
TEST(GpuCheck, SmallCasesPassOnTheEmulator) {
  for (const CheckCase& c : check_cases(true)) {
    Operands operands = make_operands(c.kind.scheme, c.type, c.product);
    const simt::Report report = emulate(&operands, c.product, {});
    EXPECT_EQ(problem_of(c, compare(operands, c.product.m), true), "") << c.name();
    EXPECT_TRUE(report.findings.empty()) << c.name() << "\n" << report.str();
  }
}

TEST(GpuCheck, SeesWrongOutputs) {
  const CheckCase c = check_cases(true).front();
  Operands operands = make_operands(c.kind.scheme, c.type, c.product);
  emulate(&operands, c.product, {});
  const Comparison right = compare(operands, c.product.m);
  EXPECT_EQ(problem_of(c, right, true), "");
  EXPECT_NE(problem_of(c, right, false), "");
  operands.out[5] ^= 0x40;
  EXPECT_NE(problem_of(c, compare(operands, c.product.m), true), "");
}

TEST(GpuCheck, RepeatedWeightsAreWeights) {
  const W4A16Weight weight =
      repeated_weight(Scheme::int4(128, false), Float16Type::kFloat16, 300, 256);
  const QuantizedMatrix back = unpack_w4a16(weight);
  for (int64_t c = 0; c < 256; ++c) {
    EXPECT_EQ(back.code(299, c), back.code(299 - 256, c));
    EXPECT_EQ(back.grid.scale(130, c / 128), back.grid.scale(2, c / 128));
  }
}

TEST(GpuCheck, ConformanceSeesOneWrongBit) {
  const std::vector<uint32_t> emulated = simt::run_conformance_emulated(simt::conformance_input());
  EXPECT_EQ(compare_conformance(emulated, emulated).words, 0);
  std::vector<uint32_t> other = emulated;
  other[simt::kConformanceOut * 3 + 20] ^= 1;
  EXPECT_EQ(compare_conformance(emulated, other).words, 1);
  other[simt::kRoundedFirst] ^= 1;  // a rounding
  EXPECT_EQ(compare_conformance(emulated, other).words, 1);
}

TEST(W4A16, RefusesWhatItCannotDo) {
  std::mt19937 random(1);
  const auto bf16 = Float16Type::kBFloat16;
  QuantizedMatrix matrix = random_codes(Scheme::mxfp4(), 8, 64, false, random);
  matrix.grid.scale_codes[0] = 254;
  matrix.grid.scale_codes[1] = 0;
  EXPECT_THROW(pack_w4a16(matrix, bf16), UnsupportedError);
  matrix.grid.scale_codes[1] = 255;  // NaN
  EXPECT_THROW(pack_w4a16(matrix, bf16), UnsupportedError);
  QuantizedMatrix nv = random_codes(Scheme::nvfp4(), 8, 64, false, random);
  nv.set_code(1, 17, 3);
  nv.grid.scale_codes[5] = 0;
  EXPECT_THROW(pack_w4a16(nv, bf16), UnsupportedError);
  for (const Scheme& scheme : {Scheme::int8(), Scheme::fp8(), Scheme::int4(16), Scheme::int4(192)})
    EXPECT_THROW(pack_w4a16(random_codes(scheme, 8, 192, false, random), bf16), UnsupportedError)
        << scheme.describe();
  const QuantizedMatrix a = random_codes(Scheme::int4(32), 8, 64, false, random);
  const QuantizedMatrix b = random_codes(Scheme::int4(32), 8, 96, false, random);
  EXPECT_THROW(pack_w4a16_pair(a, b, Float16Type::kFloat16), UsageError);
  const W4A16Weight packed = pack_w4a16(a, Float16Type::kFloat16);
  EXPECT_THROW(internal::plan_w4a16(packed, 4, 60, 8, 132), UsageError);
  EXPECT_THROW(internal::plan_w4a16(packed, 4, 68, 8, 132), UsageError);  // rows not on 16 bytes
  EXPECT_THROW(internal::plan_w4a16(packed, 4, 64, 7, 132), UsageError);
  EXPECT_THROW(internal::plan_w4a16(packed, -1, 64, 8, 132), UsageError);
}

}  // namespace
}  // namespace curvq
