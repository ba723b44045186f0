// Products with random operands to try the W4A8 kernels on, whoever runs them: the emulator or a
// device.
#pragma once

#include <string>
#include <vector>

#include "curvq/kernels/w4a8.h"

namespace curvq {

struct W4A8Case {
  W4A8Weight weight;
  Float16Type type = Float16Type::kBFloat16;
  bool exact = false;  // small integers and one 448 a row, scales 1: no rounding but of the output
  int64_t m = 0, ldx = 0, ldout = 0;
  // Columns of x past k are NaN, and so is all of out: a kernel that uses them shows it.
  std::vector<uint16_t> x, out;
  std::vector<float> bias;  // empty: none

  std::string name() const;
};

// Random codes and scales; activations of very different sizes from token to token. Every other
// seed has a bias; rows of out are up to 4 elements longer than n.
W4A8Case make_w4a8_case(Float16Type type, int64_t m, int64_t n, int64_t k, bool exact, int seed);

// Empty, or what is wrong: x is not what round_inputs() makes of c.x; c.out is not the product with
// x within w4a8_reference()'s bound, or not equal to it where that is exact.
std::string quantizer_problem(const W4A8Case& c, const W4A8Inputs& x);
std::string product_problem(const W4A8Case& c, const W4A8Inputs& x);

}  // namespace curvq
