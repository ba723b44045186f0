#include "curvq/report/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace curvq {
namespace {

TEST(Numbers, Separators) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(-123), "-123");
  EXPECT_EQ(with_separators(-123456), "-123,456");
  EXPECT_EQ(with_separators(INT64_MAX), "9,223,372,036,854,775,807");
  EXPECT_EQ(with_separators(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Numbers, BytesKeepThreeDigitsAcrossPrefixes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(9994), "9.99 kB");
  EXPECT_EQ(bytes_text(9996), "10.0 kB");
  EXPECT_EQ(bytes_text(99960), "100 kB");
  EXPECT_EQ(bytes_text(999499), "999 kB");
  EXPECT_EQ(bytes_text(999500), "1.00 MB");
  EXPECT_EQ(bytes_text(538090408), "538 MB");
  EXPECT_EQ(bytes_text(INT64_MAX), "9.22 EB");
}

TEST(Numbers, Counts) {
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(134515008), "135 M");
  EXPECT_EQ(count_text(1235814400), "1.24 B");
}

TEST(Numbers, SignificantDigits) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.099), "0.09900");
  EXPECT_EQ(number_text(0.09876), "0.09876");
  EXPECT_EQ(number_text(-12.3456), "-12.35");
  EXPECT_EQ(number_text(123456), "123456");
  EXPECT_EQ(number_text(1e6), "1.000e+06");
  EXPECT_EQ(number_text(0.000999), "9.990e-04");
  EXPECT_EQ(number_text(0.0123456, 3), "0.0123");
}

TEST(Numbers, NotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(number_text(kInfinity), "inf");
  EXPECT_EQ(number_text(-kInfinity), "-inf");
  EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(SecondsText, HasTwoDigitsInTheUnitThatPeopleSay) {
  EXPECT_EQ(seconds_text(0.424), "0.42 s");
  EXPECT_EQ(seconds_text(70.2), "70 s");
  EXPECT_EQ(seconds_text(99.6), "1.7 min");
  EXPECT_EQ(seconds_text(12 * 60 + 20), "12 min");
  EXPECT_EQ(seconds_text(100 * 60), "1.7 h");
  EXPECT_EQ(seconds_text(12345 * 60.0), "206 h");
}

}  // namespace
}  // namespace curvq
