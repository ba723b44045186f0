// Rounded inputs of compressed-tensors, to the bit, and what follows from the definition.
#include "curvq/formats/input_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/golden.h"

namespace curvq {
namespace {

const InputFormat kFormats[] = {InputFormat::kNvfp4, InputFormat::kMxfp4, InputFormat::kFp8,
                                InputFormat::kFp8Tensor, InputFormat::kInt8};

Scheme scheme_for(InputFormat inputs) {
  Scheme scheme = inputs == InputFormat::kNvfp4   ? Scheme::nvfp4()
                  : inputs == InputFormat::kMxfp4 ? Scheme::mxfp4()
                  : inputs == InputFormat::kInt8  ? Scheme::int8()
                                                  : Scheme::fp8();
  scheme.inputs = inputs;
  return scheme;
}

std::vector<float> rounded(InputFormat format, float scale, const std::vector<float>& x,
                           int64_t cols) {
  std::vector<float> out(x.size());
  round_inputs(format, scale, x.data(), static_cast<int64_t>(x.size()) / cols, cols, out.data());
  return out;
}

TEST(InputRounding, EqualsCompressedTensorsToTheBit) {
  const testing::Golden golden("ct_inputs");
  int compared = 0;
  for (const InputFormat format : kFormats) {
    const std::string name(input_format_name(format));
    for (const char* kind : {"normal", "outlier", "zeros", "allzero", "spread", "tiny", "ties"}) {
      SCOPED_TRACE(name + " " + kind);
      const auto& tensor = golden[std::string(kind) + "/x"];
      const std::string key = name + "." + kind + "/";
      const std::vector<float> x = tensor.f32(), wanted = golden[key + "rounded"].f32();
      const float scale =
          input_scale(scheme_for(format), max_abs(x.data(), static_cast<int64_t>(x.size())));
      EXPECT_EQ(golden.has(key + "scale"), has_input_scale(format));
      // Of zeros compressed-tensors has a scale of its own, which gives zeros like any other.
      if (has_input_scale(format) && kind != std::string("allzero")) {
        EXPECT_EQ(scale, golden[key + "scale"].f32()[0]);
      }
      const std::vector<float> found = rounded(format, scale, x, tensor.shape.back());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(found[i], wanted[i]) << i << ": " << x[i];
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 5 * 7 * 576);
}

TEST(InputRounding, ErrsByHalfAStepAtMost) {
  std::vector<float> x(96);
  for (int i = 0; i < 96; ++i) x[i] = std::sin(static_cast<float>(i * i)) * (1 + i % 7);
  const float amax = max_abs(x.data(), 96);
  for (const InputFormat format : kFormats) {
    const std::vector<float> out = rounded(format, input_scale(scheme_for(format), amax), x, 96);
    const int64_t group = input_group(format) > 0 ? input_group(format) : 96;
    for (int i = 0; i < 96; ++i) {
      const float of_group = max_abs(x.data() + i / group * group, group);
      // int8: half a step, or as much where 127.5 steps are clipped to 127. E4M3: 2^-4 of the
      // value, or half of the smallest step. E2M1: half of the step between 4 and 6, of a scale of
      // at most amax / 5 (MXFP4, where amax itself lies there) or amax / 6 (1 + 2^-4) (NVFP4).
      const float bound = format == InputFormat::kInt8 ? 0.50001f * of_group / 127.5f
                          : input_group(format) == 0
                              ? std::fmax(std::fabs(x[i]) / 16, amax / 448 / 1024) * 1.00001f
                              : of_group / 5 * 1.00001f;
      EXPECT_LE(std::fabs(out[i] - x[i]), bound) << input_format_name(format) << " " << i;
    }
  }
}

TEST(InputRounding, WhatIsNotFiniteIsNotHidden) {
  for (const InputFormat format : kFormats) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 1.0f);
      x[5] = bad;
      const std::vector<float> out = rounded(format, 1.0f, x, 64);
      EXPECT_FALSE(std::isfinite(out[5])) << input_format_name(format);
    }
  }
}

TEST(InputRounding, RoundsInPlaceAndRefusesWidthsThatGroupsDoNotDivide) {
  std::vector<float> x = {0.3f, -7.0f, 2.2f, 0.0f};
  const std::vector<float> wanted = rounded(InputFormat::kInt8, 0, x, 4);
  round_inputs(InputFormat::kInt8, 0, x.data(), 1, 4, x.data());
  EXPECT_EQ(x, wanted);
  EXPECT_THROW(round_inputs(InputFormat::kMxfp4, 0, x.data(), 1, 4, x.data()), UsageError);
  EXPECT_EQ(rounded(InputFormat::kNone, 0, x, 4), x);
}

TEST(InputRounding, SchemesTakeInputsThatServersHaveKernelsFor) {
  const auto allowed = [](Scheme scheme) {
    std::string names;
    for (const InputFormat format : kFormats) {
      scheme.inputs = format;
      try {
        scheme.validate();
        names += std::string(input_format_name(format)) + " ";
      } catch (const UsageError&) {
      }
    }
    return names;
  };
  EXPECT_EQ(allowed(Scheme::nvfp4()), "nvfp4 ");
  EXPECT_EQ(allowed(Scheme::mxfp4()), "mxfp4 ");
  EXPECT_EQ(allowed(Scheme::fp8()), "fp8 fp8-tensor ");
  EXPECT_EQ(allowed(Scheme::int8()), "int8 ");
  EXPECT_EQ(allowed(Scheme::int4(128)), "fp8 ");
  for (const Scheme& scheme :
       {Scheme::int4(0), Scheme::int4(128, false), Scheme::int8(128), Scheme::int8(0, false)})
    EXPECT_EQ(allowed(scheme), "") << scheme.describe();
}

}  // namespace
}  // namespace curvq
