// The emulator finds every bug that is planted, in every order, and none where there is none.
#include "kernels/cuda/simt/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "conformance.h"
#include "planted_bugs.h"

namespace curvq::simt {
namespace {

struct Seen {
  Report report;
  bool right = true;  // all outputs are the exact integers

  bool caught() const { return !report.findings.empty() || !right; }
};

// Small integers, so that every order of sums is exact.
template <Bug kBug>
Seen run(const Settings& settings, int m = 13, int k = 136, int blocks = 2) {
  std::mt19937 random(3);
  const auto integer = [&] {
    return f32_to_bf16(static_cast<float>(static_cast<int>(random() % 9) - 4));
  };
  // On 16 bytes, as cudaMalloc's memory; the emulator is told where it really ends.
  std::vector<U32x4> x_memory(m * k / 8 + 1), w_memory(32 * k / 8 + 1);
  auto* x = reinterpret_cast<uint16_t*>(x_memory.data());
  auto* w = reinterpret_cast<uint16_t*>(w_memory.data());
  for (int i = 0; i < m * k; ++i) x[i] = integer();
  for (int i = 0; i < 32 * k; ++i) w[i] = integer();
  std::vector<float> scales(32), out(m * 32, -1e9f), partial(blocks * m * 32, -1e9f);
  for (int i = 0; i < 32; ++i) scales[i] = static_cast<float>(1 << i % 3);
  std::vector<uint32_t> ticket(1);
  const std::vector<uint16_t> original(w, w + 32 * k);

  Emulator emulator(settings);
  emulator.readable(x, m * k * 2, "x");
  emulator.readable(w, 32 * k * 2, "w");
  emulator.readable(scales.data(), 128, "scales");
  emulator.writable(out.data(), out.size() * 4, "out");
  emulator.writable(partial.data(), partial.size() * 4, "partial");
  emulator.writable(ticket.data(), 4, "ticket");
  const PlantedArgs args{x, w, scales.data(), out.data(), partial.data(), ticket.data(), m, k};
  emulator.launch({blocks, 1, 1}, 64, kPlantedShared, [&args] { planted_kernel<kBug>(args); });

  Seen seen{.report = emulator.report()};
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < 32; ++j) {
      float want = 0;
      for (int c = 0; c < k; ++c)
        want += bf16_to_f32(x[i * k + c]) * bf16_to_f32(original[j * k + c]);
      seen.right &= out[i * 32 + j] == want * scales[j];
    }
  return seen;
}

std::vector<Settings> all_orders() {
  std::vector<Settings> all;
  for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled})
    for (const Landing landing : {Landing::kEarly, Landing::kLate})
      all.push_back({.order = order, .landing = landing, .seed = 7});
  return all;
}

TEST(Emulator, FindsNothingInARightKernel) {
  for (const Settings& settings : all_orders())
    for (const int m : {1, 8, 13, 16})
      for (const int k : {8, 16, 136, 160}) {
        const Seen seen = run<Bug::kNone>(settings, m, k);
        EXPECT_TRUE(seen.right) << m << " " << k;
        EXPECT_TRUE(seen.report.findings.empty()) << seen.report.str();
      }
}

// In every order, and by the check that is meant for it; null: by wrong results.
template <Bug kBug>
void expect_caught(const char* kind) {
  for (const Settings& settings : all_orders()) {
    const Seen seen = run<kBug>(settings);
    EXPECT_TRUE(seen.caught());
    if (kind == nullptr) {
      EXPECT_FALSE(seen.right);
    } else {
      EXPECT_TRUE(seen.report.has(kind)) << kind << " not among\n" << seen.report.str();
    }
  }
}

TEST(EmulatorCatches, MissingBarrier) { expect_caught<Bug::kNoBarrier>("shared-race"); }
TEST(EmulatorCatches, WaitGroupOffByOne) { expect_caught<Bug::kWaitsForOneTooFew>("async-race"); }
TEST(EmulatorCatches, PrefetchOneStageTooFar) {
  expect_caught<Bug::kPrefetchOneTooFar>("shared-race");
}
TEST(EmulatorCatches, CopiesNeverCommitted) { expect_caught<Bug::kNoCommit>("async-race"); }
TEST(EmulatorCatches, WrongSwizzle) { expect_caught<Bug::kWrongSwizzle>(nullptr); }
TEST(EmulatorCatches, MissingTokenPredicate) {
  expect_caught<Bug::kNoTokenPredicate>("global-bounds");
}
TEST(EmulatorCatches, MissingTailPredicate) { expect_caught<Bug::kNoColumnPredicate>(nullptr); }
TEST(EmulatorCatches, ScaleOfTheNeighbour) { expect_caught<Bug::kWrongScale>(nullptr); }
TEST(EmulatorCatches, MisalignedCopy) { expect_caught<Bug::kMisaligned>("shared-alignment"); }
TEST(EmulatorCatches, PastTheEndOfSharedMemory) {
  expect_caught<Bug::kPastSharedMemory>("shared-bounds");
}
TEST(EmulatorCatches, UninitialisedRead) {
  expect_caught<Bug::kUninitialised>("shared-uninitialised");
}
TEST(EmulatorCatches, BarrierInABranch) { expect_caught<Bug::kBarrierInBranch>("divergence"); }
TEST(EmulatorCatches, DivergentShuffle) { expect_caught<Bug::kDivergentShuffle>("divergence"); }
TEST(EmulatorCatches, ExitBeforeABarrier) { expect_caught<Bug::kExitsBeforeBarrier>("deadlock"); }
TEST(EmulatorCatches, MissingWarpSync) { expect_caught<Bug::kNoWarpSync>("shared-race"); }
TEST(EmulatorCatches, ConstantCacheReadOfFreshData) {
  expect_caught<Bug::kConstantReadOfOutput>("global-not-coherent");
}
TEST(EmulatorCatches, WriteToAnInput) { expect_caught<Bug::kWritesInput>("global-read-only"); }
TEST(EmulatorCatches, MissingFence) { expect_caught<Bug::kNoFence>("global-race"); }
TEST(EmulatorCatches, MissingTicket) { expect_caught<Bug::kNoTicket>("global-race"); }
TEST(EmulatorCatches, BlocksThatOverlap) { expect_caught<Bug::kOverlappingBlocks>("global-race"); }

// What values alone say: the off-by-one is invisible where copies land early.
TEST(Emulator, SomeBugsGiveRightValues) {
  const Seen seen = run<Bug::kWaitsForOneTooFew>({.landing = Landing::kEarly});
  EXPECT_TRUE(seen.right);
  EXPECT_TRUE(seen.report.has("async-race"));
}

// Operand layouts of mma.m16n8k64 and of its scales in the PTX manual.
TEST(Emulator, BlockScaledProductsAreWhatPtxSays) {
  const std::vector<uint32_t> in = conformance_input(), out = run_conformance_emulated(in);
  const auto word = [&](int lane) { return in[lane * kConformanceIn + 7]; };
  const auto element = [](uint32_t codes, int k) {
    return static_cast<double>(e2m1_to_f32(codes >> (4 * (k % 8)) & 15));
  };
  const auto a_at = [&](int row, int k) {
    constexpr uint32_t kFactors[4] = {1, 5, 9, 13};
    return element(word(row % 8 * 4 + k % 32 / 8) * kFactors[row / 8 + k / 32 * 2], k);
  };
  const auto b_at = [&](int k, int column) {
    return element(word(column * 4 + k % 32 / 8) * (k < 32 ? 3 : 7), k);
  };
  // Of mma.m16n8k32 with bytes.
  const auto byte_of = [](uint32_t codes, int k) {
    const uint32_t halves = (codes & 0x9c9c9c9cu) ^ 0x20202020u;
    return static_cast<double>(e4m3_to_f32(static_cast<uint8_t>(halves >> (8 * (k % 4)))));
  };
  const auto byte_a_at = [&](int row, int k) {
    constexpr uint32_t kFactors[4] = {1, 5, 9, 13};
    return byte_of(word(row % 8 * 4 + k % 16 / 4) * kFactors[row / 8 + k / 16 * 2], k);
  };
  const auto byte_b_at = [&](int k, int column) {
    return byte_of(word(column * 4 + k % 16 / 4) * (k < 16 ? 3 : 7), k);
  };
  const auto step = [](uint32_t steps, int byte) {
    return std::exp2(static_cast<double>(steps >> (8 * byte) & 3) - 2);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      const uint32_t rows = word(4 * (row % 8) + row / 8), of_row = rows >> 3 ^ rows;
      double nvfp4 = 0, mxfp4 = 0;
      for (int k = 0; k < 64; ++k) {
        const double product = a_at(row, k) * b_at(k, column);
        nvfp4 += product * step(of_row, k / 16) * step(word(4 * column + 1) >> 5, k / 16);
        mxfp4 += product * step(of_row, 2 + k / 32) * step(word(4 * column) >> 5, 2 + k / 32);
      }
      const uint32_t* got = &out[lane * kConformanceOut + kBlockScaledFirst];
      EXPECT_EQ(std::bit_cast<float>(got[i]), nvfp4);
      EXPECT_EQ(std::bit_cast<float>(got[4 + i]), mxfp4);
      double mxfp8 = 0;
      for (int k = 0; k < 32; ++k) mxfp8 += byte_a_at(row, k) * byte_b_at(k, column);
      EXPECT_EQ(std::bit_cast<float>(got[8 + i]),
                mxfp8 * step(of_row, 3) * step(word(4 * column + 1) >> 5, 3));
    }
  }
}

// Against arithmetic of its own: what operations return, as a device does (gpu_check compares).
TEST(Emulator, OperationsReturnWhatPtxSays) {
  const std::vector<uint32_t> in = conformance_input(), out = run_conformance_emulated(in);
  const auto word = [&](int lane, int i) { return in[lane * kConformanceIn + i]; };
  const auto result = [&](int lane, int i) { return out[lane * kConformanceOut + i]; };
  const auto half = [](uint32_t w, int h) {
    return bf16_to_f32(static_cast<uint16_t>(w >> (16 * h)));
  };
  // Operand layouts of mma.m16n8k16 in the PTX manual: groups of four lanes are rows of a and
  // columns of b.
  const auto a_at = [&](int row, int k) {
    const int lane = row % 8 * 4 + k % 8 / 2;
    return half(word(lane, row / 8 + k / 8 * 2), k % 2);
  };
  const auto b_at = [&](int k, int column) {
    return half(word(column * 4 + k % 8 / 2, 1 + k / 8), k % 2);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      float want = 0;
      for (int k = 0; k < 16; ++k)
        want += a_at(lane / 4 + i / 2 * 8, k) * b_at(k, lane % 4 * 2 + i % 2);
      EXPECT_EQ(as_float(result(lane, i)), want);
      // ldmatrix: matrix i has the rows of lanes 8 i ..., and lane l gets word l % 4 of row l / 4.
      const int row = (8 * i + lane / 4) ^ 5;
      const uint32_t stored = word(row, 7) ^ (lane % 4 == 0 ? 0 : word(row, lane % 4));
      EXPECT_EQ(result(lane, 12 + i), stored);
      uint32_t copied = word(lane, i);
      const int valid = std::clamp(lane % 17 - 4 * i, 0, 4);
      if (valid < 4) copied &= (1u << 8 * valid) - 1;
      EXPECT_EQ(result(lane, 26 + i), copied);
    }
    EXPECT_EQ(result(lane, 16), (word(lane, 7) & 0xffff) | word(lane, 0) << 16);
    EXPECT_EQ(result(lane, 25), word(lane ^ 5, 4));
    for (int h = 0; h < 2; ++h) {
      const float x = half(word(lane, 4), h), y = half(word(lane, 5), h);
      EXPECT_EQ(half(result(lane, 20), h), bf16_to_f32(f32_to_bf16(x * y)));
      EXPECT_EQ(half(result(lane, 21), h), bf16_to_f32(f32_to_bf16(x - y)));
    }
  }
}

TEST(Emulator, CountsBankConflicts) {
  const auto ratio = [](const Counters& c) {
    return static_cast<double>(c.shared_wavefronts) / static_cast<double>(c.shared_ideal);
  };
  const Counters swizzled = run<Bug::kNone>({.count = true}).report.counters;
  const Counters plain = run<Bug::kNoSwizzle>({.count = true}).report.counters;
  // Rows of 32 bytes: 8 of them in one column of pieces meet each bank twice.
  EXPECT_LT(ratio(swizzled), 1.2);
  EXPECT_GT(ratio(plain), 1.5);
}

}  // namespace
}  // namespace curvq::simt
